"""Helm charts of a repository: what each one reads, and what it renders."""

import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from placements.services.impact.kustomize import NotRenderedError, Source

HELM, CHART = "helm", "Chart.yaml"
_RELEASE = re.compile(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class HelmChart:
    """A chart by its file Chart.yaml, with the values files that it is rendered with, in their order."""

    file: str
    values: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.file).parent)

    def command(self, root: Path) -> list[str]:
        """Return the command that renders it below a root. Raise NotRenderedError."""
        program = shutil.which(HELM)
        if program is None:
            raise NotRenderedError("helm is not installed")
        chart = (root / self.folder).resolve()
        values = [f"--values={root / name}" for name in self.values]
        # A change under review names the folder: only a plain name is no option of helm.
        name = PurePosixPath(self.folder).name
        release = name if _RELEASE.fullmatch(name) else "release"
        return [program, "template", release, str(chart), *values]


def chart_folders(names: Collection[str]) -> set[str]:
    """Return the folders of the charts that are not part of another one."""
    paths = (PurePosixPath(name) for name in names)
    folders = {path.parent for path in paths if path.name == CHART}
    return {
        str(folder) for folder in folders if not folders.intersection(folder.parents)
    }


def chart_of(name: str, folders: Collection[str]) -> str:
    """Return the folder of the chart that a file is part of, "" for none."""
    parents = map(str, PurePosixPath(name).parents)
    return next((parent for parent in parents if parent in folders), "")


def charts_of(
    tree: Collection[str], values: Collection[str], within: Callable[[str], bool]
) -> dict[Source, set[str]]:
    """Return the charts with the files that each one reads.

    A values file in the folder of a chart is for that chart, another one is for all charts.
    """
    folders = chart_folders(tree)
    charts: dict[Source, set[str]] = {}
    for folder in sorted(folders):
        own = tuple(name for name in values if chart_of(name, folders) in ("", folder))
        chart = HelmChart(str(PurePosixPath(folder) / CHART), own)
        if within(chart.file):
            parts = {name for name in tree if chart_of(name, folders) == folder}
            charts[chart] = parts.union(own)
    return charts
