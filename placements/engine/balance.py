"""Whether a hard topology spread limit is exceeded by the clusters that are placed."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from placements.engine.scheduling.candidates import filter_columns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import SpreadInput, is_hard


class ExceededLimit(NamedTuple):
    """A `DoNotSchedule` constraint whose skew is above its limit.

    `emptiest_domain` is the one that the fullest is compared with; it is empty while there are fewer domains
    than minDomains, so that the minimum counts as 0.
    """

    topology_key: str
    max_skew: int
    fullest_domain: str
    fullest_count: int
    emptiest_domain: str
    emptiest_count: int
    skew: int


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


def limit_words(limit: ExceededLimit) -> str:
    """Return which limit is exceeded by what: "region skew 3, max skew 1 (east 4, west 1)"."""
    emptiest = f"{limit.emptiest_domain} {limit.emptiest_count:,}"
    if not limit.emptiest_domain:
        emptiest = "fewer domains than minDomains"
    counts = f"{limit.fullest_domain} {limit.fullest_count:,}, {emptiest}"
    return f"{limit.topology_key} skew {limit.skew:,}, max skew {limit.max_skew:,} ({counts})"


def balance_sentence(exceeded: Iterable[ExceededLimit]) -> str:
    """Return which hard limits what is placed exceeds, with the counts; empty without one."""
    parts = [limit_words(limit) for limit in exceeded]
    return f"Out of balance: {'; '.join(parts)}." if parts else ""
