"""Create, edit, scale and delete placements, budgets, overrides and staged update strategies."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.patches import merged
from fleetui.apimachinery.words import names_and_more
from placements.hubs.kinds.base import Manifest, items_at, mapping_at, text_of
from placements.hubs.write_requests import KINDS, OFFERED
from placements.hubs.writing.effects import deselection_of
from placements.hubs.writing.planning import (
    MOST_LISTED,
    Fields,
    Planner,
    WritePlan,
    WriteRefusedError,
    check_fields,
    choice_field,
    mapping_field,
    number_field,
    text_field,
)
from placements.manifests.disruption import budget_errors, parse_disruption_budget
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.staged_update import parse_staged_strategy

PLACEMENT, NAMESPACED_PLACEMENT = "ClusterResourcePlacement", "ResourcePlacement"
PLACEMENTS = (PLACEMENT, NAMESPACED_PLACEMENT)
BUDGET = "ClusterResourcePlacementDisruptionBudget"
MOST_CLUSTERS = 2**31 - 1
DELETED_AT_ONCE = "Deleted immediately; disruption budgets are not consulted."
SAVED = tuple(kind for kind, one in KINDS.items() if "apply" in OFFERED[one.plural])
DELETED = tuple(kind for kind, one in KINDS.items() if "delete" in OFFERED[one.plural])


def parse_budget(document: Mapping[str, Any]) -> object:
    return parse_disruption_budget(dict(document))


_PARSERS: Mapping[str, Callable[[Any], object]] = {
    PLACEMENT: parse_placement,
    BUDGET: parse_budget,
    "ClusterResourceOverride": parse_cluster_override,
    "ResourceOverride": parse_override,
    "ClusterStagedUpdateStrategy": parse_staged_strategy,
}


def plan_save(planner: Planner, entered: Fields) -> WritePlan:
    """Plan the creation of an object, or the edit of one that a base or the hub has.

    `base` is the manifest that a draft was started from; without one it is the object as it is. `patch` is a
    merge patch of the object as it is on the hub, where the manifest may be behind it: right after another
    write the mirror has not seen that yet.
    """
    fields = check_fields(entered, required=["manifest"], optional=["base", "patch"])
    manifest = mapping_field(fields, "manifest")
    kind = choice_field(manifest, "kind", SAVED)
    group = str(manifest.get("apiVersion")).partition("/")[0]
    if group != KINDS[kind].group:
        message = f"Unsupported value: {str(manifest.get('apiVersion'))[:80]!r}"
        raise InvalidManifest.of(
            "apiVersion", "not-one-of", message, planner.api_version(kind)
        )
    metadata = mapping_field(manifest, "metadata")
    check_name(kind, metadata)
    if kind in _PARSERS:
        _PARSERS[kind](manifest)
    base = fields.get("base")
    live = planner.find(kind, metadata["name"], metadata.get("namespace") or "")
    notes = budget_notes(planner, manifest) if kind == BUDGET else ()
    if live is None and base is None:
        return WritePlan(
            planner.create(manifest), fields, manifest=manifest, notes=notes
        )
    if live is None:
        raise WriteRefusedError(
            f"{kind} {metadata['name']} was deleted on the hub since the draft was started; "
            "create it as a new object."
        )
    if fields.get("patch") is not None:
        base, manifest = live, merged(live, mapping_field(fields, "patch"))
    return plan_edit(planner, fields, live, base or live, manifest, notes=notes)


def plan_edit(
    planner: Planner,
    fields: Fields,
    live: Manifest,
    base: Manifest,
    manifest: Manifest,
    *,
    notes: tuple[str, ...] = (),
) -> WritePlan:
    check_not_deleting(live)
    request, foreign = planner.edit(live, base, manifest)
    if foreign:
        notes = (
            *notes,
            "Fields that other managers own are removed by a second write: review again then.",
        )
    deselection = (
        deselection_of(manifest) if request and live.get("kind") in PLACEMENTS else None
    )
    if deselection and deselection.clusters:
        notes = (*notes, f"{deselection}.")
    return WritePlan(request, fields, live, manifest, notes, foreign, deselection)


def check_name(kind: str, metadata: Mapping[str, Any]) -> None:
    """Raise InvalidManifest unless the metadata names an object of this kind, namespaced or not."""
    if not text_field(metadata, "name"):
        raise InvalidManifest.of("metadata.name", "required", "Required value")
    namespace = text_field(metadata, "namespace", longest=63)
    if bool(namespace) is not KINDS[kind].is_namespaced:
        allowed = "a namespace" if KINDS[kind].is_namespaced else "no value"
        message = (
            "Required value"
            if KINDS[kind].is_namespaced
            else "Forbidden: the kind is cluster-scoped"
        )
        raise InvalidManifest.of("metadata.namespace", "conflict", message, allowed)


def check_not_deleting(live: Manifest) -> None:
    if mapping_at(live, "metadata").get("deletionTimestamp"):
        raise WriteRefusedError("The object is being deleted on the hub.")


def budget_notes(planner: Planner, manifest: Manifest) -> tuple[str, ...]:
    """Return what has to be known of a budget. Raise InvalidManifest where it does not fit its placement."""
    name = mapping_at(manifest, "metadata")["name"]
    placement = planner.find(PLACEMENT, name)
    if placement is None:
        return (f"The hub has no placement {name} yet.",)
    type_name = placement_type(placement)
    if type_name in list(PlacementType):
        errors = budget_errors(
            parse_disruption_budget(dict(manifest)).spec, PlacementType(type_name)
        )
        if errors:
            raise InvalidManifest(errors)
    return ()


def placement_type(placement: Manifest) -> str:
    policy = mapping_at(placement, "spec", "policy")
    return text_of(policy.get("placementType")) or PlacementType.PICK_ALL.value


def plan_scale(planner: Planner, entered: Fields) -> WritePlan:
    """Plan another number of clusters for a placement of type PickN."""
    fields = check_fields(
        entered, required=["name", "numberOfClusters"], optional=["namespace"]
    )
    namespace = text_field(fields, "namespace", longest=63)
    kind = NAMESPACED_PLACEMENT if namespace else PLACEMENT
    live = planner.read(kind, text_field(fields, "name"), namespace)
    number = number_field(fields, "numberOfClusters", least=0, most=MOST_CLUSTERS)
    if placement_type(live) != PlacementType.PICK_N:
        raise WriteRefusedError(
            f"Only a PickN placement has a number of clusters; this is {placement_type(live)}."
        )
    draft = deepcopy(dict(live))
    draft["spec"]["policy"]["numberOfClusters"] = number
    notes = (
        ("Every cluster is unselected: the placement is removed from all of them.",)
        if not number
        else ()
    )
    return plan_edit(planner, fields, live, live, draft, notes=notes)


def plan_delete(planner: Planner, entered: Fields) -> WritePlan:
    fields = check_fields(entered, required=["kind", "name"], optional=["namespace"])
    kind = choice_field(fields, "kind", DELETED)
    check_name(kind, fields)
    name, namespace = (
        text_field(fields, "name"),
        text_field(fields, "namespace", longest=63),
    )
    live = planner.read(kind, name, namespace)
    notes: tuple[str, ...] = ()
    if kind in PLACEMENTS:
        clusters = bound_clusters(planner, f"{namespace}/{name}" if namespace else name)
        notes = (
            f"The placement is removed from {names_and_more(clusters, MOST_LISTED) or 'no cluster'}.",
            DELETED_AT_ONCE,
        )
    elif kind.endswith("StagedUpdateRun"):
        notes = ("Bindings stay as they are.",)
    return WritePlan(planner.delete(live), fields, live, None, notes)


def bound_clusters(planner: Planner, owner: str) -> list[str]:
    """Return the clusters that have a binding of a placement, as the mirror has them."""
    kind = "ResourceBinding" if "/" in owner else "ClusterResourceBinding"
    bindings = planner.mirrored(kind, owner=owner, is_deleting=False)
    return sorted(
        {text_of(mapping_at(one, "spec").get("targetCluster")) for one in bindings}
        - {""}
    )


def condition_of(live: Manifest, kind: str) -> Mapping[str, Any]:
    """Return a condition of the status, an empty object where there is none."""
    conditions = (mapping_at(one) for one in items_at(live, "status", "conditions"))
    return next((one for one in conditions if one.get("type") == kind), {})
