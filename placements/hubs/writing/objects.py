"""Create, edit, scale and delete placements, budgets, overrides and staged update strategies."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.patches import merged
from fleetui.apimachinery.words import full_name, names_and_more
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.write_bodies import edit_body
from placements.hubs.write_requests import KINDS, OFFERED, Verb
from placements.hubs.writing.effects import deselection_of
from placements.hubs.writing.planning import (
    MOST_LISTED,
    Planner,
    WritePlan,
    WriteRefusedError,
    check_field,
    check_not_deleting,
)
from placements.manifests.disruption import budget_errors, parse_disruption_budget
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.staged_update import parse_staged_strategy

PLACEMENT, NAMESPACED_PLACEMENT = "ClusterResourcePlacement", "ResourcePlacement"
PLACEMENTS = (PLACEMENT, NAMESPACED_PLACEMENT)
BUDGET = "ClusterResourcePlacementDisruptionBudget"
DELETED_AT_ONCE = "Deleted immediately; disruption budgets are not consulted."
SECOND_WRITE = (
    "Fields that other managers own are removed by a second write: review again then."
)
NO_CLUSTER = "Every cluster is unselected: the placement is removed from all of them."
SAVED = tuple(kind for kind, one in KINDS.items() if "apply" in OFFERED[one.plural])
DELETED = tuple(kind for kind, one in KINDS.items() if "delete" in OFFERED[one.plural])


_PARSERS: Mapping[str, Callable[[Any], object]] = {
    PLACEMENT: parse_placement,
    BUDGET: parse_disruption_budget,
    "ClusterResourceOverride": parse_cluster_override,
    "ResourceOverride": parse_override,
    "ClusterStagedUpdateStrategy": parse_staged_strategy,
}


def save(planner: Planner, fields: dict[str, Any], _: Manifest) -> WritePlan:
    """Plan the creation of an object, or the edit of one that a base or the hub has.

    `base` is the manifest that a draft was started from; without one it is the object as it is. `patch` is a
    merge patch of the object as it is on the hub, where the manifest may be behind it: right after another
    write the mirror has not seen that yet.
    """
    manifest = fields["manifest"]
    check_field("kind", manifest.get("kind"), SAVED)
    kind = manifest["kind"]
    group = str(manifest.get("apiVersion")).partition("/")[0]
    if group != KINDS[kind].group:
        message = f"Unsupported value: {str(manifest.get('apiVersion'))[:80]!r}"
        allowed = planner.api_version(kind)
        raise InvalidManifest.of("apiVersion", "not-one-of", message, allowed)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        raise InvalidManifest.of("metadata", "wrong-type", "Invalid value", "an object")
    check_name(kind, metadata)
    if kind in _PARSERS:
        _PARSERS[kind](dict(manifest))

    base = fields.get("base")
    live = planner.find(kind, metadata["name"], metadata.get("namespace") or "")
    notes = budget_notes(planner, manifest) if kind == BUDGET else ()
    if live is None:
        if base is not None:
            raise WriteRefusedError(
                f"{kind} {metadata['name']} was deleted on the hub since the draft was started; "
                "create it as a new object."
            )
        return WritePlan(planner.create(manifest), manifest, notes)
    if "patch" in fields:
        base, manifest = live, merged(live, fields["patch"])
    return edited(planner, live, base or live, manifest, notes)


def edited(
    planner: Planner,
    live: Manifest,
    base: Manifest,
    manifest: Manifest,
    notes: tuple[str, ...] = (),
) -> WritePlan:
    """Plan the apply of what a draft changes; one that only removes is a merge patch.

    Raise StaleBaseError, WriteRefusedError.
    """
    check_not_deleting(live)
    body = edit_body(live, base, manifest, manager=planner.hub.field_manager)
    if not body.changes:
        return WritePlan(None, manifest, notes, live=live)
    foreign = body.foreign
    if not body.changes.values and set(foreign) == set(body.changes.removed):
        request, foreign = planner.patch(live, {}, foreign), ()
    else:
        request = planner.write(Verb.APPLY, live, body.content)
    if foreign:
        notes = (*notes, SECOND_WRITE)
    is_placement = live.get("kind") in PLACEMENTS
    deselection = deselection_of(manifest) if is_placement else None
    if deselection and deselection.clusters:
        notes = (*notes, f"{deselection}.")
    return WritePlan(request, manifest, notes, foreign, deselection, live=live)


def check_name(kind: str, metadata: Mapping[str, Any]) -> None:
    """Raise InvalidManifest unless the metadata names an object of this kind, namespaced or not."""
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if not name:
        raise InvalidManifest.of("metadata.name", "required", "Required value")
    check_field("name", name)
    check_field("namespace", namespace)
    is_namespaced = KINDS[kind].is_namespaced
    if is_namespaced and not namespace:
        message, allowed = "Required value", "a namespace"
    elif namespace and not is_namespaced:
        message, allowed = "Forbidden: the kind is cluster-scoped", "no value"
    else:
        return
    raise InvalidManifest.of("metadata.namespace", "conflict", message, allowed)


def budget_notes(planner: Planner, manifest: Manifest) -> tuple[str, ...]:
    """Return what has to be known of a budget. Raise InvalidManifest where it does not fit its placement."""
    name = mapping_at(manifest, "metadata")["name"]
    placement = planner.find(PLACEMENT, name)
    if placement is None:
        return (f"The hub has no placement {name} yet.",)
    type_name = placement_type(placement)
    if type_name in list(PlacementType):
        spec = parse_disruption_budget(dict(manifest)).spec
        if errors := budget_errors(spec, PlacementType(type_name)):
            raise InvalidManifest(errors)
    return ()


def placement_type(placement: Manifest) -> str:
    policy = mapping_at(placement, "spec", "policy")
    return text_of(policy.get("placementType")) or PlacementType.PICK_ALL.value


def scale(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan another number of clusters for a placement of type PickN."""
    if placement_type(live) != PlacementType.PICK_N:
        raise WriteRefusedError(
            f"Only a PickN placement has a number of clusters; this is {placement_type(live)}."
        )
    draft = deepcopy(dict(live))
    draft["spec"]["policy"]["numberOfClusters"] = fields["numberOfClusters"]
    notes = () if fields["numberOfClusters"] else (NO_CLUSTER,)
    return edited(planner, live, live, draft, notes)


def delete(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    kind, metadata = str(live["kind"]), mapping_at(live, "metadata")
    notes: tuple[str, ...] = ()
    if kind in PLACEMENTS:
        owner = full_name(fields.get("namespace", ""), fields["name"])
        clusters = names_and_more(bound_clusters(planner, owner), MOST_LISTED)
        removed_from = f"The placement is removed from {clusters or 'no cluster'}."
        notes = (removed_from, DELETED_AT_ONCE)
    elif kind.endswith("StagedUpdateRun"):
        notes = ("Bindings stay as they are.",)
    conditions = {key: metadata.get(key) for key in ("uid", "resourceVersion")}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
    return WritePlan(planner.write(Verb.DELETE, live, body), notes=notes)


def bound_clusters(planner: Planner, owner: str) -> list[str]:
    """Return the clusters that have a binding of a placement, as the mirror has them."""
    kind = "ResourceBinding" if "/" in owner else "ClusterResourceBinding"
    bindings = planner.mirrored(kind, owner=owner, is_deleting=False)
    names = {text_of(mapping_at(one, "spec").get("targetCluster")) for one in bindings}
    return sorted(names - {""})


def condition_of(live: Manifest, kind: str) -> Mapping[str, Any]:
    """Return a condition of the status, an empty object where there is none."""
    conditions = (mapping_at(one) for one in items_at(live, "status", "conditions"))
    return next((one for one in conditions if one.get("type") == kind), {})


def status_of(live: Manifest, kind: str) -> str:
    """Return True, False, Unknown, or "" without this condition."""
    return text_of(condition_of(live, kind).get("status"))
