"""Filter: a cluster that the current policy has placed already (`rules/scheduler.md#filters`)."""

from bisect import bisect_left
from operator import attrgetter

from clusters.columns import Bools
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode


class AlreadyPlacedFilter:
    """A cluster passes when it has no scheduled or bound binding of the current policy."""

    name = "already placed"

    def passes(self, cycle: Cycle) -> Bools:
        return ~cycle.is_placed

    def reason(self, cycle: Cycle, position: int) -> Reason:
        name = cycle.fleet.names[position]
        current = cycle.binding_classes.current  # sorted by cluster name
        index = bisect_left(current, name, key=attrgetter("cluster"))
        return Reason(ReasonCode.ALREADY_PLACED, {"state": current[index].state})
