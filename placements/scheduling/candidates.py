"""The columns that the clusters of one PickN cycle compete on.

They are all that a round depends on, so picks plus these columns rebuild any number of any round.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.columns import Bools, Codes, Ints
from placements.scheduling.cycle import Cycle
from placements.scheduling.policy import TopologySpreadConstraint, WhenUnsatisfiable
from placements.scheduling.profile import PROFILES
from placements.scheduling.scores.preferred import affinity
from placements.scheduling.scores.was_here import was_here
from placements.scheduling.spread.base import Groups, SpreadStrategy

Verdicts = NDArray[np.uint8]


@dataclass(frozen=True)
class Candidates:
    """One entry per cluster of the fleet, in its order, in every column.

    `failed` has one bit per filter of the profile, the first filter lowest; 0 = passes them all.
    """

    strategy: SpreadStrategy
    constraints: tuple[TopologySpreadConstraint, ...]
    groups: tuple[Groups, ...]
    failed: Verdicts
    affinity: Ints
    was_here: Ints
    placed: Codes

    @cached_property
    def passes(self) -> Bools:
        """Mark the clusters that no filter before topology spread rules out."""
        passes: Bools = self.failed == 0
        return passes

    def starting_counts(self) -> list[Ints]:
        """Give the counts per group before the first round, a list entry per constraint."""
        return [self.strategy.starting_counts(groups, self.placed) for groups in self.groups]

    def was_here_in(self, round_number: int) -> Ints:
        """Give the *was here* column as the given round (from 1) uses it."""
        if round_number > 1 and self.constraints and self.strategy.was_here_in_first_round_only:
            return np.zeros_like(self.was_here)
        return self.was_here


def is_hard(constraint: TopologySpreadConstraint) -> bool:
    """Tell whether the constraint forbids, rather than discourages, a violation."""
    return constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE


def candidates_of(cycle: Cycle) -> Candidates:
    """Run the filters and the scores of a cycle over the whole fleet."""
    profile = PROFILES[cycle.semantics]
    constraints = cycle.policy.topology_spread_constraints
    return Candidates(
        strategy=profile.strategy,
        constraints=constraints,
        groups=tuple(profile.strategy.groups(constraint, cycle.fleet) for constraint in constraints),
        failed=verdicts(cycle),
        affinity=affinity(cycle),
        was_here=was_here(cycle),
        placed=cycle.placed,
    )


def verdicts(cycle: Cycle) -> Verdicts:
    """Run every filter of the profile; bit k of a cluster is set when filter k rules it out."""
    failed = np.zeros(len(cycle.fleet), dtype=np.uint8)
    for bit, rule in enumerate(PROFILES[cycle.semantics].filters):
        failed |= np.where(rule.passes(cycle), 0, 1 << bit).astype(np.uint8)
    return failed
