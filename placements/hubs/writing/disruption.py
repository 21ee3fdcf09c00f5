"""Evictions, with the arithmetic of the disruption budget as the mirror has it."""

from typing import Any
from uuid import uuid4

from clusters.models import Hub
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import counted
from placements.engine.disruption import (
    ClusterAvailability,
    EvictionContext,
    EvictionReason,
    Verdict,
    judge_eviction,
)
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import mirrored_objects
from placements.hubs.writing.objects import BUDGET, placement_type, status_of
from placements.hubs.writing.planning import Planner, WritePlan, WriteRefusedError
from placements.manifests.disruption import (
    DisruptionBudgetSpec,
    parse_disruption_budget,
)
from placements.manifests.policy import PlacementType

EVICTION = "ClusterResourcePlacementEviction"
LONGEST_PART = 63
_REFUSED = {
    EvictionReason.PICK_FIXED: "A PickFixed placement names its clusters: nothing can be evicted.",
    EvictionReason.BEING_DELETED: "The placement is being deleted.",
    EvictionReason.NOT_THERE: "The placement has no binding on this cluster.",
}


def evict(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan the eviction of a placement from a cluster; `eviction` is the name of the object."""
    name, cluster = fields["placement"], fields["cluster"]
    verdict = hub_verdict(planner.hub, live, name, cluster)
    if verdict.why in _REFUSED:
        raise WriteRefusedError(_REFUSED[verdict.why])
    new_name = f"{eviction_prefix(name, cluster)}{uuid4().hex[:8]}"
    fields.setdefault("eviction", new_name)
    manifest = {
        "kind": EVICTION,
        "metadata": {"name": fields["eviction"]},
        "spec": {"placementName": name, "clusterName": cluster},
    }
    request = planner.create(manifest)
    return WritePlan(request, request.body, (sentence(verdict), _SELECTED_AGAIN))


_SELECTED_AGAIN = "Without a taint that the placement does not tolerate, the scheduler may select it again."


def eviction_prefix(placement: str, cluster: str) -> str:
    """Return what the names of our evictions of a placement from a cluster start with."""
    parts = [one[:LONGEST_PART].strip("-.") for one in (placement, cluster)]
    return f"fleetui-{parts[0]}-{parts[1]}-"


def hub_verdict(
    hub: Hub,
    placement: Manifest,
    name: str,
    cluster: str,
) -> Verdict:
    """Return whether the hub would execute an eviction, as far as the mirror shows it."""
    kind = placement_type(placement)
    if kind not in list(PlacementType):
        return Verdict(EvictionReason.NO_BUDGET)
    bindings = {
        text_of(mapping_at(one, "spec").get("targetCluster")): availability(one)
        for one in mirrored_objects(hub, "ClusterResourceBinding", owner=name)
    }
    number = mapping_at(placement, "spec", "policy").get("numberOfClusters")
    wanted = number if isinstance(number, int) else len(bindings)
    is_deleting = bool(mapping_at(placement, "metadata").get("deletionTimestamp"))
    context = EvictionContext(
        PlacementType(kind), bindings, wanted, is_being_deleted=is_deleting
    )
    return judge_eviction(context, cluster, budget_of(hub, name))


def availability(binding: Manifest) -> ClusterAvailability:
    state = mapping_at(binding, "spec").get("state")
    is_deleting = mapping_at(binding, "metadata").get("deletionTimestamp")
    if state == "Unscheduled" or is_deleting:
        return ClusterAvailability.LEAVING
    if state == "Scheduled":
        return ClusterAvailability.PLANNED
    if "False" in [status_of(binding, kind) for kind in ("Applied", "Overridden")]:
        return ClusterAvailability.FAILED
    if status_of(binding, "Available") == "True":
        return ClusterAvailability.AVAILABLE
    return ClusterAvailability.WORKING


def budget_of(hub: Hub, name: str) -> DisruptionBudgetSpec | None:
    for manifest in mirrored_objects(hub, BUDGET, name=name):
        keys = ("apiVersion", "kind", "metadata", "spec")
        try:
            return parse_disruption_budget({key: manifest[key] for key in keys}).spec
        except (InvalidManifest, KeyError):
            break
    return None


def sentence(verdict: Verdict) -> str:
    """Return what is expected of an eviction."""
    numbers = verdict.numbers
    counts, evictions = "", "0 evictions"
    if numbers:
        counts = f"{numbers.available} of {numbers.total} clusters are available"
        evictions = counted(numbers.allowed, "eviction")
    match verdict.why:
        case EvictionReason.WITHIN_BUDGET:
            return f"{counts}; the disruption budget allows {evictions} now."
        case EvictionReason.OVER_BUDGET:
            return f"{counts}; the disruption budget allows no eviction now. The hub will not execute it."
        case EvictionReason.MISCONFIGURED:
            return "The disruption budget does not fit the placement. The hub will not execute it."
        case EvictionReason.PLANNED:
            return (
                "Nothing was applied to the cluster yet. The hub will not execute it."
            )
        case EvictionReason.FAILED:
            return "The placement failed on the cluster; its disruption budget does not count."
        case EvictionReason.LEAVING:
            return "The placement is leaving the cluster already."
    return "No disruption budget limits this."
