"""Evictions, with the arithmetic of the disruption budget as the mirror has it."""

import re
from uuid import uuid4

from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.disruption import (
    ClusterAvailability,
    EvictionContext,
    EvictionReason,
    Verdict,
    judge_eviction,
)
from placements.hubs.kinds.base import Manifest, mapping_at, text_of
from placements.hubs.writing.objects import (
    BUDGET,
    PLACEMENT,
    condition_of,
    placement_type,
)
from placements.hubs.writing.planning import (
    Fields,
    Planner,
    WritePlan,
    WriteRefusedError,
    check_fields,
    text_field,
)
from placements.manifests.disruption import (
    DisruptionBudgetSpec,
    parse_disruption_budget,
)
from placements.manifests.policy import PlacementType

EVICTION = "ClusterResourcePlacementEviction"
LONGEST_PART = 63
_NAME = re.compile(r"fleetui-[a-z0-9]([-a-z0-9.]*[a-z0-9])?-[0-9a-f]{8}")
_REFUSED = {
    EvictionReason.PICK_FIXED: "A PickFixed placement names its clusters: nothing can be evicted.",
    EvictionReason.BEING_DELETED: "The placement is being deleted.",
    EvictionReason.NOT_THERE: "The placement has no binding on this cluster.",
}


def plan_evict(planner: Planner, entered: Fields) -> WritePlan:
    """Plan the eviction of a placement from a cluster; `eviction` is the name of the object."""
    fields = dict(
        check_fields(entered, required=["placement", "cluster"], optional=["eviction"])
    )
    name, cluster = text_field(fields, "placement"), text_field(fields, "cluster")
    placement = planner.read(PLACEMENT, name)
    verdict = hub_verdict(planner, placement, name, cluster)
    if verdict.why in _REFUSED:
        raise WriteRefusedError(_REFUSED[verdict.why])
    fields["eviction"] = (
        fields.get("eviction") or f"{eviction_prefix(name, cluster)}{uuid4().hex[:8]}"
    )
    if not _NAME.fullmatch(text_field(fields, "eviction")):
        raise InvalidManifest.of(
            "eviction",
            "bad-format",
            "Invalid value",
            "fleetui-PLACEMENT-CLUSTER-01234567",
        )
    manifest = {
        "kind": EVICTION,
        "metadata": {"name": fields["eviction"]},
        "spec": {"placementName": name, "clusterName": cluster},
    }
    request = planner.create(manifest)
    return WritePlan(
        request,
        fields,
        manifest=request.body,
        notes=(sentence(verdict), _SELECTED_AGAIN),
    )


_SELECTED_AGAIN = "Without a taint that the placement does not tolerate, the scheduler may select it again."


def eviction_prefix(placement: str, cluster: str) -> str:
    """Return what the names of our evictions of a placement from a cluster start with."""
    parts = [one[:LONGEST_PART].strip("-.") for one in (placement, cluster)]
    return f"fleetui-{parts[0]}-{parts[1]}-"


def hub_verdict(
    planner: Planner, placement: Manifest, name: str, cluster: str
) -> Verdict:
    """Return whether the hub would execute an eviction, as far as the mirror shows it."""
    kind = placement_type(placement)
    bindings = list(planner.mirrored("ClusterResourceBinding", owner=name))
    if kind not in list(PlacementType):
        return Verdict(EvictionReason.NO_BUDGET)
    number = mapping_at(placement, "spec", "policy").get("numberOfClusters")
    context = EvictionContext(
        PlacementType(kind),
        {
            text_of(mapping_at(one, "spec").get("targetCluster")): availability(one)
            for one in bindings
        },
        number if isinstance(number, int) else len(bindings),
        is_being_deleted=bool(
            mapping_at(placement, "metadata").get("deletionTimestamp")
        ),
    )
    return judge_eviction(context, cluster, budget_of(planner, name))


def availability(binding: Manifest) -> ClusterAvailability:
    state = mapping_at(binding, "spec").get("state")
    if state == "Unscheduled" or mapping_at(binding, "metadata").get(
        "deletionTimestamp"
    ):
        return ClusterAvailability.LEAVING
    if state == "Scheduled":
        return ClusterAvailability.PLANNED
    if any(
        condition_of(binding, kind).get("status") == "False"
        for kind in ("Applied", "Overridden")
    ):
        return ClusterAvailability.FAILED
    is_available = condition_of(binding, "Available").get("status") == "True"
    return (
        ClusterAvailability.AVAILABLE if is_available else ClusterAvailability.WORKING
    )


def budget_of(planner: Planner, name: str) -> DisruptionBudgetSpec | None:
    manifest = next(iter(planner.mirrored(BUDGET, name=name)), None)
    if manifest is None:
        return None
    try:
        document = {
            key: manifest[key] for key in ("apiVersion", "kind", "metadata", "spec")
        }
        return parse_disruption_budget(document).spec
    except (InvalidManifest, KeyError):
        return None


def sentence(verdict: Verdict) -> str:
    """Return what is expected of an eviction."""
    numbers = verdict.numbers
    counts = (
        f"{numbers.available} of {numbers.total} clusters are available"
        if numbers
        else ""
    )
    match verdict.why:
        case EvictionReason.WITHIN_BUDGET:
            left = numbers.allowed if numbers else 0
            return f"{counts}; the disruption budget allows {left} eviction{'' if left == 1 else 's'} now."
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
