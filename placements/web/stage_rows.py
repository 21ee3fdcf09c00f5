"""Rows of the form of a staged update strategy: each row is a stage of its manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.yaml import dump_yaml
from placements.services.fleet.forms import read_documents

_APPROVAL, _WAIT = "Approval", "TimedWait"
_KNOWN = {
    "name",
    "labelSelector",
    "maxConcurrency",
    "sortingLabelKey",
    "beforeStageTasks",
    "afterStageTasks",
}


@dataclass(frozen=True, slots=True)
class StageRow:
    """One row as it is typed; `labels` as `env=prod, tier=gold`, `before` and `after` an approval."""

    name: str = ""
    labels: str = ""
    most: str = ""
    sort: str = ""
    before: str = ""
    wait: str = ""
    after: str = ""

    def stage(self, place: int) -> dict[str, Any]:
        """Return the stage of the manifest. Raise InvalidManifest for labels that are not `key=value`."""
        pairs = [
            one.strip().partition("=") for one in self.labels.split(",") if one.strip()
        ]
        if wrong := next((key for key, sign, _ in pairs if not sign), ""):
            path = f"spec.stages[{place}].labelSelector.matchLabels"
            raise InvalidManifest(
                [FieldError(path, "syntax", f"Invalid value: {wrong}", "key=value")]
            )
        labels = {key.strip(): value.strip() for key, _, value in pairs}
        waits = [{"type": _WAIT, "waitTime": self.wait}] if self.wait else []
        stage = {
            "name": self.name,
            "labelSelector": {"matchLabels": labels} if labels else {},
            "sortingLabelKey": self.sort,
            "maxConcurrency": int(self.most)
            if self.most.isdecimal() and len(self.most) < 10
            else self.most,
            "beforeStageTasks": [{"type": self.before}] if self.before else [],
            "afterStageTasks": [
                *waits,
                *([{"type": self.after}] if self.after else []),
            ],
        }
        return {
            key: value
            for key, value in stage.items()
            if key == "labelSelector" or value not in ("", [])
        }


def stage_rows(document: Mapping[str, Any]) -> list[StageRow] | None:
    """Return the stages of a valid strategy as rows; None if the rows cannot show all of it."""
    rows = []
    for stage in document["spec"]["stages"]:
        selector = stage.get("labelSelector")
        if (
            selector is None
            or selector.get("matchExpressions")
            or not stage.keys() <= _KNOWN
        ):
            return None
        labels = selector.get("matchLabels") or {}
        tasks = {one["type"]: one for one in stage.get("afterStageTasks") or ()}
        rows.append(
            StageRow(
                stage["name"],
                ", ".join(f"{key}={value}" for key, value in labels.items()),
                str(stage.get("maxConcurrency", "")),
                stage.get("sortingLabelKey", ""),
                _APPROVAL if stage.get("beforeStageTasks") else "",
                tasks.get(_WAIT, {}).get("waitTime", ""),
                tasks.get(_APPROVAL, {}).get("type", ""),
            )
        )
    return rows


def typed_stages(params: QueryDict) -> list[StageRow]:
    """Return the rows of a form that are not empty."""
    columns = [params.getlist(f"stage_{part}") for part in StageRow.__slots__]
    rows = (
        StageRow(*(one.strip() for one in values))
        for values in zip(*columns, strict=False)
    )
    return [row for row in rows if row != StageRow()]


def with_stages(text: str, params: QueryDict) -> str:
    """Return a manifest with the stages and the name of a form, and all else of it. Raise InvalidManifest."""
    data = read_documents(text)[0].data
    metadata, spec = (mapping_at(data.get(part)) for part in ("metadata", "spec"))
    name = {"name": params.get("name", "").strip()} if "name" in params else {}
    stages = [row.stage(place) for place, row in enumerate(typed_stages(params))]
    return dump_yaml(
        {**data, "metadata": {**metadata, **name}, "spec": {**spec, "stages": stages}}
    )
