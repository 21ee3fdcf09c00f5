"""The two conditions that Open Cluster Management writes on a Placement (`spec/other-schedulers.md` 1.7).

There are no cluster sets here: an empty fleet is reported as an empty set.
"""

from datetime import datetime

from placements.engine.scheduling.decision import Decision
from placements.explain.hub_conditions import Condition, Truth

_SATISFIED, _MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"


def satisfied(decision: Decision | None, *, since: datetime) -> Condition:
    """Return `PlacementSatisfied`; unknown while nothing is decided."""
    if decision is None:
        return Condition(
            _SATISFIED, Truth.UNKNOWN, "SchedulePending", "scheduling has not completed yet", since
        )
    chosen, wanted = selected(decision), decision.cycle.policy.number_of_clusters
    missing = (wanted or 0) - chosen
    reason, message = "NotAllDecisionsScheduled", f"{missing} cluster decisions unscheduled"
    if not len(decision.cycle.fleet):
        reason, message = "AllManagedClusterSetsEmpty", "there is no cluster in the fleet"
    elif decision.is_failed:
        message = "the constraints cannot be met; nothing was changed"
    elif not chosen and wanted != 0:
        reason, message = "NoManagedClusterMatched", "no cluster passes the predicates and the taints"
    elif missing <= 0:
        words = "all cluster decisions scheduled"
        return Condition(_SATISFIED, Truth.TRUE, "AllDecisionsScheduled", words, since)
    return Condition(_SATISFIED, Truth.FALSE, reason, message, since)


def selected(decision: Decision) -> int:
    return sum(binding.is_active for binding in decision.bindings_after)


def misconfigured(faults: list[dict[str, str]], *, since: datetime) -> Condition:
    """Return `PlacementMisconfigured`: a document at fault is refused, so only what it selects can be."""
    if faults:
        words = "; ".join(fault["message"] for fault in faults)
        return Condition(_MISCONFIGURED, Truth.TRUE, "Misconfigured", words, since)
    return Condition(_MISCONFIGURED, Truth.FALSE, "Succeedconfigured", "the document could be read", since)
