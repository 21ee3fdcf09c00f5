"""The columns that the clusters of one PickN cycle compete on.

They are all that a round depends on, so picks plus these columns rebuild any number of any round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.columns import Bools, Codes, Ints, descending
from placements.scheduling.cycle import Cycle
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.profile import Profile, profile_of
from placements.scheduling.scores.was_here import was_here
from placements.scheduling.spread.base import Groups, Scores, Setting, SpreadStrategy

Verdicts = NDArray[np.uint8]


@dataclass(frozen=True)
class Candidates:
    """One entry per cluster of the fleet, in its order, in every column.

    `failed` has one bit per filter of the profile, the first filter lowest; 0 = passes them all.
    `affinity` is the score that is told, `preference` the one that ranks: they are one
    column where the preference is the affinity score alone.
    """

    strategy: SpreadStrategy
    constraints: tuple[TopologySpreadConstraint, ...]
    groups: tuple[Groups, ...]
    failed: Verdicts
    affinity: Scores
    preference: Scores
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

    def in_order(self, positions: Ints, columns: Sequence[Scores]) -> Ints:
        """Order positions, which are ascending, by rank columns over them, the name ending a tie."""
        if not self.strategy.smaller_name_wins:
            return positions[descending(columns)]
        return positions[::-1][descending([column[::-1] for column in columns])]

    def was_here_in(self, round_number: int) -> Ints:
        """Give the *was here* column as the given round (from 1) uses it."""
        if round_number > 1 and self.constraints and self.strategy.was_here_in_first_round_only:
            return np.zeros_like(self.was_here)
        return self.was_here


def candidates_of(cycle: Cycle) -> Candidates:
    """Run the filters and the scores of a cycle over the whole fleet."""
    profile = profile_of(cycle)
    strategy, constraints = profile.strategy, cycle.policy.topology_spread_constraints
    passes = filter_columns(cycle, profile)
    failed = _verdicts(cycle, passes)
    told = profile.preference.affinity(cycle, failed == 0)
    return Candidates(
        strategy=strategy,
        constraints=constraints,
        groups=strategy.groups(Setting(cycle.fleet, constraints, passes)),
        failed=failed,
        affinity=told,
        preference=profile.preference.ranking(cycle, failed == 0, told),
        was_here=was_here(cycle),
        placed=cycle.placed,
    )


def verdicts(cycle: Cycle) -> Verdicts:
    """Run every filter of the profile; bit k of a cluster is set when filter k rules it out."""
    return _verdicts(cycle, filter_columns(cycle, profile_of(cycle)))


def filter_columns(cycle: Cycle, profile: Profile) -> dict[str, Bools]:
    """Run every filter of the profile; give by its name which clusters pass it."""
    return {rule.name: rule.passes(cycle) for rule in profile.filters}


def _verdicts(cycle: Cycle, passes: Mapping[str, Bools]) -> Verdicts:
    failed = np.zeros(len(cycle.fleet), dtype=np.uint8)
    for bit, column in enumerate(passes.values()):
        failed |= np.where(column, 0, 1 << bit).astype(np.uint8)
    return failed


def preference_order(candidates: Candidates, was_here: Ints, taken: Codes) -> Ints:
    """Give the positions of the clusters that pass the filters, best first, the spread left aside."""
    passes = candidates.passes.copy()
    passes[taken] = False
    positions = np.nonzero(passes)[0]
    columns = candidates.strategy.rank(
        spread=(np.zeros(len(positions), dtype=np.int64),),
        preference=candidates.preference[positions],
        was_here=was_here[positions],
    )
    return candidates.in_order(positions, columns)
