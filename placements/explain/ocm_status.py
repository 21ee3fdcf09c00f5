"""The two conditions that Open Cluster Management writes on a Placement (`spec/other-schedulers.md` 1.7).

Nothing here knows cluster sets, so the reasons that speak of them never come up; a fleet without a cluster
is told as a set without one.
"""

from datetime import datetime

from placements.explain.hub_conditions import Condition, Truth
from placements.scheduling.decision import Decision

_SATISFIED, _MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"


def satisfied(decision: Decision | None, *, since: datetime) -> Condition:
    """Give `PlacementSatisfied`; unknown while nothing is decided."""
    if decision is None:
        return Condition(
            _SATISFIED, Truth.UNKNOWN, "SchedulePending", "scheduling has not completed yet", since
        )
    status, reason, message = _judged(decision)
    return Condition(_SATISFIED, status, reason, message, since)


def _judged(decision: Decision) -> tuple[Truth, str, str]:
    chosen, wanted = selected(decision), decision.cycle.policy.number_of_clusters
    if not len(decision.cycle.fleet):
        return Truth.FALSE, "AllManagedClusterSetsEmpty", "there is no cluster in the fleet"
    if decision.is_failed:
        return Truth.FALSE, "NotAllDecisionsScheduled", "the constraints cannot be met; nothing was changed"
    if not chosen and wanted != 0:
        return Truth.FALSE, "NoManagedClusterMatched", "no cluster passes the predicates and the taints"
    missing = (wanted or 0) - chosen
    if missing > 0:
        return Truth.FALSE, "NotAllDecisionsScheduled", f"{missing} cluster decisions unscheduled"
    return Truth.TRUE, "AllDecisionsScheduled", "all cluster decisions scheduled"


def selected(decision: Decision) -> int:
    """Count the clusters that a placement has after a decision."""
    return sum(binding.is_active for binding in decision.bindings_after)


def misconfigured(faults: list[dict[str, str]], *, since: datetime) -> Condition:
    """Give `PlacementMisconfigured`: a document at fault is refused, so only what it selects can be."""
    if faults:
        words = "; ".join(fault["message"] for fault in faults)
        return Condition(_MISCONFIGURED, Truth.TRUE, "Misconfigured", words, since)
    return Condition(_MISCONFIGURED, Truth.FALSE, "Succeedconfigured", "the document could be read", since)
