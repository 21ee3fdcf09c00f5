"""Static files that come out of an installed package: the script that draws charts."""

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

SCRIPT = "plotly.min.js"
PREFIX = "vendor"


class PlotlyFinder(BaseFinder):
    """Finds `vendor/plotly.min.js` in the installed plotly, so that script and Python code have one version.

    Only located, not imported.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spec = find_spec("plotly")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("plotly is not installed: its script draws the charts")
        self.folder = Path(spec.origin).parent / "package_data"
        self.storage = FileSystemStorage(location=self.folder)
        self.storage.prefix = PREFIX  # type: ignore[attr-defined]  # how collectstatic learns where a file goes

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return the location of the file; an empty list for any other path, as Django requires."""
        if path != f"{PREFIX}/{SCRIPT}":
            return []
        place = str(self.folder / SCRIPT)
        return [place] if find_all else place

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        yield SCRIPT, self.storage
