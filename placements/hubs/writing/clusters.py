"""Labels, taints and cordons of the member clusters of a hub."""

from copy import deepcopy
from typing import Any

from clusters.manifest import parse_member
from clusters.operations.edit import CORDON
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import items_at, mapping_at
from placements.hubs.kinds.base import Manifest
from placements.hubs.write_bodies import Path
from placements.hubs.writing.effects import failing_runs
from placements.hubs.writing.planning import Planner, WritePlan

_LABELS, _TAINTS = ("metadata", "labels"), ("spec", "taints")


def change_labels(
    planner: Planner, fields: dict[str, Any], live: Manifest
) -> WritePlan:
    """Plan other labels of a cluster: null removes one, those that are not named stay."""
    before = mapping_at(live, *_LABELS)
    changed = {
        key: value
        for key, value in fields["labels"].items()
        if before.get(key) != value
    }
    after = {**before, **changed}
    draft = deepcopy(dict(live))
    draft["metadata"]["labels"] = {
        key: value for key, value in after.items() if value is not None
    }
    check_member(draft, "metadata.labels")
    if not changed:
        return WritePlan(None, draft)
    values: dict[Path, Any] = {(*_LABELS, key): value for key, value in changed.items()}
    return WritePlan(planner.patch(live, values), draft, failing_runs(live, draft))


def change_taints(
    planner: Planner, fields: dict[str, Any], live: Manifest
) -> WritePlan:
    """Plan other taints of a cluster: the whole list, since the hub has it as one value."""
    return with_taints(planner, live, fields.get("taints"))


def cordon(planner: Planner, _: dict[str, Any], live: Manifest) -> WritePlan:
    return with_taints(planner, live, [*other_taints(live), dict(CORDON)])


def uncordon(planner: Planner, _: dict[str, Any], live: Manifest) -> WritePlan:
    return with_taints(planner, live, other_taints(live))


def other_taints(live: Manifest) -> list[Any]:
    return [one for one in items_at(live, *_TAINTS) if not is_cordon(one)]


def is_cordon(taint: object) -> bool:
    fields = mapping_at(taint)
    return all((fields.get(key) or "") == value for key, value in CORDON.items())


def with_taints(planner: Planner, live: Manifest, taints: Any) -> WritePlan:
    draft = deepcopy(dict(live))
    draft["spec"] = {**mapping_at(live, "spec"), "taints": taints}
    check_member(draft, "spec.taints")
    if list(items_at(live, *_TAINTS)) == (taints or []):
        return WritePlan(None, draft)
    return WritePlan(planner.patch(live, {_TAINTS: taints}), draft)


def check_member(draft: Manifest, path: str) -> None:
    """Raise InvalidManifest where labels or taints are invalid; the rest is what the hub has accepted."""
    document = {key: draft[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    try:
        parse_member(document)
    except InvalidManifest as error:
        errors = [one for one in error.errors if one.path.startswith(path)]
        if errors:
            raise InvalidManifest(errors) from error
