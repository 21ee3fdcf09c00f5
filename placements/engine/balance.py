"""Whether a hard topology spread limit is exceeded by the clusters that are placed."""

from collections.abc import Iterable

import numpy as np

from placements.engine.limits import ExceededLimit
from placements.engine.scheduling.candidates import filter_columns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import SpreadInput, is_hard


def exceeded_limits(cycle: Cycle, placed: Iterable[str]) -> list[ExceededLimit]:
    """Return the hard constraints of a policy that these clusters exceed, in the order of the policy.

    The rules of the cycle decide which domains there are and with which the fullest is compared; its bindings
    play no part. Names that are not in the fleet count for no domain.
    """
    constraints = cycle.policy.topology_spread_constraints
    if not any(map(is_hard, constraints)):
        return []
    profile, positions_of = profile_of(cycle), cycle.fleet.positions
    # Rules that have an exact search form domains from labels alone.
    passes = {} if profile.has_exact_search else filter_columns(cycle, profile)
    positions = np.array(
        [positions_of[name] for name in placed if name in positions_of], dtype=np.int32
    )
    exceeded = []
    for constraint, groups in zip(
        constraints,
        profile.strategy.groups(SpreadInput(cycle.fleet, constraints, passes)),
        strict=True,
    ):
        if not is_hard(constraint) or not len(groups):
            continue
        counts = groups.count(positions)
        smallest = profile.strategy.project(constraint, groups, counts).smallest
        fullest = int((counts - smallest).argmax())
        skew = int(counts[fullest] - smallest[fullest])
        if skew <= constraint.max_skew:
            continue
        siblings = np.equal(groups.siblings, groups.siblings[fullest])
        compared = np.flatnonzero(siblings & (counts == smallest[fullest])).tolist()
        exceeded.append(
            ExceededLimit(
                topology_key=constraint.topology_key,
                max_skew=constraint.max_skew,
                fullest_domain=groups.values[fullest],
                fullest_count=int(counts[fullest]),
                emptiest_domain=groups.values[compared[0]] if compared else "",
                emptiest_count=int(smallest[fullest]),
                skew=skew,
            )
        )
    return exceeded
