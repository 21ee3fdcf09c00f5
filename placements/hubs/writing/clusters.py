"""Labels, taints and cordons of the member clusters of a hub."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from clusters.manifest import parse_member
from clusters.operations.edit import CORDON
from fleetui.apimachinery.errors import InvalidManifest
from placements.hubs.kinds.base import Manifest, items_at, mapping_at
from placements.hubs.write_bodies import Path, value_at
from placements.hubs.writing.effects import failing_runs
from placements.hubs.writing.objects import check_not_deleting
from placements.hubs.writing.planning import (
    Fields,
    Planner,
    WritePlan,
    check_fields,
    mapping_field,
    text_field,
)

MEMBER = "MemberCluster"
_LABELS, _TAINTS = ("metadata", "labels"), ("spec", "taints")


def plan_labels(planner: Planner, entered: Fields) -> WritePlan:
    """Plan other labels of a cluster: null removes one, those that are not named stay."""
    fields = check_fields(entered, required=["name", "labels"])
    live = planner.read(MEMBER, text_field(fields, "name"))
    labels = mapping_field(fields, "labels")
    before = mapping_at(live, *_LABELS)
    after = {**before, **labels}
    after = {key: value for key, value in after.items() if value is not None}
    draft = deepcopy(dict(live))
    draft["metadata"] = {**mapping_at(live, "metadata"), "labels": after}
    check_member(draft, "metadata.labels")
    values: dict[Path, Any] = {
        (*_LABELS, key): value
        for key, value in after.items()
        if before.get(key) != value
    }
    removed: list[Path] = [
        (*_LABELS, key)
        for key, value in labels.items()
        if value is None and key in before
    ]
    plan = _plan_patch(planner, fields, live, values, removed, draft)
    return replace(plan, notes=failing_runs(live, draft)) if plan.request else plan


def plan_taints(planner: Planner, entered: Fields) -> WritePlan:
    """Plan other taints of a cluster: the whole list, since the hub has it as one value."""
    fields = check_fields(entered, required=["name"], optional=["taints"])
    live = planner.read(MEMBER, text_field(fields, "name"))
    return _with_taints(planner, fields, live, fields.get("taints"))


def plan_cordon(planner: Planner, entered: Fields) -> WritePlan:
    fields = check_fields(entered, required=["name"])
    live = planner.read(MEMBER, text_field(fields, "name"))
    others = [one for one in items_at(live, *_TAINTS) if not is_cordon(one)]
    return _with_taints(planner, fields, live, [*others, dict(CORDON)])


def plan_uncordon(planner: Planner, entered: Fields) -> WritePlan:
    fields = check_fields(entered, required=["name"])
    live = planner.read(MEMBER, text_field(fields, "name"))
    others = [one for one in items_at(live, *_TAINTS) if not is_cordon(one)]
    return _with_taints(planner, fields, live, others)


def is_cordon(taint: object) -> bool:
    fields = mapping_at(taint)
    return all((fields.get(key) or "") == value for key, value in CORDON.items())


def _with_taints(
    planner: Planner, fields: Fields, live: Manifest, taints: Any
) -> WritePlan:
    draft = deepcopy(dict(live))
    draft["spec"] = {**mapping_at(live, "spec"), "taints": taints}
    check_member(draft, "spec.taints")
    before = value_at(live, _TAINTS)
    is_same = before == taints or (not taints and not items_at(live, *_TAINTS))
    return _plan_patch(
        planner, fields, live, {} if is_same else {_TAINTS: taints}, [], draft
    )


def _plan_patch(
    planner: Planner,
    fields: Fields,
    live: Manifest,
    values: Mapping[Path, Any],
    removed: list[Path],
    draft: Manifest,
) -> WritePlan:
    check_not_deleting(live)
    request = planner.patch(live, values, removed) if values or removed else None
    return WritePlan(request, fields, live, draft)


def check_member(draft: Manifest, path: str) -> None:
    """Raise InvalidManifest where labels or taints are invalid; the rest is what the hub has accepted."""
    try:
        parse_member(
            {key: draft[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        )
    except InvalidManifest as error:
        errors = [one for one in error.errors if one.path.startswith(path)]
        if errors:
            raise InvalidManifest(errors) from error
