"""The status of a placement in the words of its API, and its manifest with it (`spec/lifecycle.md` B.7)."""

from collections.abc import Sequence
from typing import Any

from placements.explain.hub_status import condition_of
from placements.models import Binding, Decision, Placement, ResourceSnapshot
from placements.queries.records import decision_of
from placements.scheduling.bindings import BindingState

_SCHEDULED = "ClusterResourcePlacementScheduled"


def manifest_of(placement: Placement) -> dict[str, Any]:
    """Give the manifest as it was written, with our status."""
    return {**placement.document, "status": status_of(placement)}


def status_of(placement: Placement) -> dict[str, Any]:
    """Give conditions, selected resources and placed clusters."""
    snapshot = ResourceSnapshot.objects.filter(placement=placement, is_latest=True).first()
    status: dict[str, Any] = {"conditions": [scheduled_condition(placement)]}
    if snapshot:
        status["observedResourceIndex"] = str(snapshot.number)
        status["selectedResources"] = [_resource(identity) for identity in snapshot.identities]
    status["placementStatuses"] = [_cluster(binding) for binding in placed_bindings(placement)]
    return status


def scheduled_condition(placement: Placement) -> dict[str, Any]:
    """Give the condition `Scheduled`: unknown while a cycle is due that may change it."""
    if placement.selection_faults:
        words = "; ".join(fault["message"] for fault in placement.selection_faults)
        return _condition("False", "InvalidResourceSelectors", words, placement)
    latest = latest_decision(placement)
    condition = condition_of(decision_of(latest)) if latest else None
    if placement.is_due or condition is None:
        return _condition("Unknown", "SchedulePending", "Scheduling has not completed", placement)
    return _condition(condition.status, condition.reason, condition.message, placement)


def latest_decision(placement: Placement) -> Decision | None:
    """Give the last cycle that decided something."""
    found = Decision.objects.filter(placement=placement)
    found = found.select_related("record").defer("record__content")
    return found.order_by("-number").first()


def placed_bindings(placement: Placement) -> Sequence[Binding]:
    """Give the bindings that hold, or are about to hold, the resources, by cluster name."""
    rows = Binding.objects.filter(placement=placement).exclude(state=BindingState.UNSCHEDULED)
    cited = rows.select_related("decision__record", "policy_snapshot").defer("decision__record__content")
    return list(cited.order_by("cluster_name"))


def _condition(status: str, reason: str, message: str, placement: Placement) -> dict[str, Any]:
    return {
        "type": _SCHEDULED,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": placement.revision,
    }


def _resource(identity: list[str]) -> dict[str, str]:
    api_version, kind, namespace, name = identity
    group, _, version = api_version.rpartition("/")
    found = {"group": group, "version": version, "kind": kind, "name": name}
    return {**found, "namespace": namespace} if namespace else found


def _cluster(binding: Binding) -> dict[str, Any]:
    return {
        "clusterName": binding.cluster_name,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "Scheduled"}],
    }
