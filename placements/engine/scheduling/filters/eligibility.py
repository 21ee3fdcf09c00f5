"""Filter: a cluster must be eligible (`rules/scheduler.md#eligibility`)."""

from clusters.columns import Bools
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode


class EligibilityFilter:
    """A cluster passes when its agent reports, has joined and is healthy, and it is not leaving."""

    name = "eligibility"

    def passes(self, cycle: Cycle) -> Bools:
        return cycle.fleet.is_eligible

    def reason(self, cycle: Cycle, position: int) -> Reason:
        return not_eligible(cycle, position)


def not_eligible(cycle: Cycle, position: int) -> Reason:
    """Return why a cluster is not eligible, with the kind and text that its eligibility has."""
    eligibility = cycle.fleet.clusters[position].eligibility
    return Reason(
        ReasonCode.NOT_ELIGIBLE,
        {"kind": eligibility.kind, "reason": eligibility.reason},
    )
