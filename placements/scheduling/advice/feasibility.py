"""How many clusters a policy can reach at all: "at most 7 possible"."""

from dataclasses import dataclass, replace

from placements.scheduling.cycle import Cycle
from placements.scheduling.policy import PlacementType, TopologySpreadConstraint
from placements.scheduling.profile import profile_of
from placements.scheduling.scheduler import schedule
from placements.scheduling.spread.base import GroupStrategy, is_hard


@dataclass(frozen=True, slots=True)
class Bound:
    """No number above `most` can be reached; `is_exact` says that `most` itself can."""

    most: int
    is_exact: bool


def feasibility_bound(cycle: Cycle) -> Bound | None:
    """Bound what a PickN placement can have on this fleet; None for other types, or when a run fails.

    Under one hard constraint the greedy loop reaches the largest possible set: a group below the fullest
    one can always be filled, and the fullest may grow as far as the emptiest allows, in any order. So the
    bound is exact there. With several, each constraint by itself bounds the number from above; but not
    where a constraint has a say in who is counted for the others (`ocm`, `kubernetes`): there only the
    filters bound it.
    """
    if cycle.policy.placement_type is not PlacementType.PICK_N:
        return None
    constraints = cycle.policy.topology_spread_constraints
    if not isinstance(profile_of(cycle).strategy, GroupStrategy):
        is_exact = len(constraints) <= 1
        most = _reached(cycle, constraints if is_exact else ())
        return None if most is None else Bound(most, is_exact)
    hard = [one for one in constraints if is_hard(one)]
    reached = [_reached(cycle, (one,)) for one in hard] or [_reached(cycle, ())]
    if None in reached:
        return None
    return Bound(min(one for one in reached if one is not None), is_exact=len(hard) <= 1)


def _reached(cycle: Cycle, constraints: tuple[TopologySpreadConstraint, ...]) -> int | None:
    """Count what a run for the whole fleet places, None when it fails."""
    update = {"topology_spread_constraints": constraints, "number_of_clusters": len(cycle.fleet)}
    decision = schedule(replace(cycle, policy=cycle.policy.model_copy(update=update)))
    return None if decision.is_failed else len(decision.picked_names) + len(decision.kept)
