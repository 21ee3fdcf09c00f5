"""The columns by which the candidates of one PickN cycle compete, and the picks of a picker.

A round depends on nothing else, so picks and these columns are enough to rebuild every round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clusters.columns import Bools, Codes, Floats, Ints
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import Profile, profile_of
from placements.engine.scheduling.scores.preferred_affinity import stickiness
from placements.engine.scheduling.selectors import (
    Malformed,
    malformed_values,
    match_any_term,
)
from placements.engine.scheduling.spread.base import (
    Groups,
    GroupStrategy,
    Scores,
    SpreadInput,
    SpreadStrategy,
)
from placements.manifests.policy import PlacementType, TopologySpreadConstraint

Verdicts = NDArray[np.uint8]


@dataclass(frozen=True)
class Candidates:
    """One entry per cluster of the fleet, in its order, in every column.

    `failed` has one bit per filter of the profile, the first filter lowest; 0 = passes them all. `affinity`
    is the reported score, `preference` the one that ranks: they are one column where the preference is the
    affinity score alone.
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
        """Return which clusters no filter before topology spread rules out."""
        passes: Bools = self.failed == 0
        return passes

    @cached_property
    def is_judged_by_domain(self) -> bool:
        """Return whether the score of a cluster depends on its domains alone; the test takes microseconds."""
        return isinstance(self.strategy, GroupStrategy)

    def starting_counts(self) -> list[Ints]:
        """Return the counts per domain before the first round, a list entry per constraint."""
        return [
            self.strategy.starting_counts(groups, self.placed) for groups in self.groups
        ]

    def in_order(self, positions: Ints, columns: Sequence[Scores]) -> Ints:
        """Return positions, which are ascending, ordered by rank columns over them, the name ending a tie."""
        if not self.strategy.smaller_name_wins:
            return positions[descending(columns)]
        return positions[::-1][descending([column[::-1] for column in columns])]

    def was_here_in(self, round_number: int) -> Ints:
        """Return the stickiness column as the given round (from 1) uses it."""
        if (
            round_number > 1
            and self.constraints
            and self.strategy.was_here_in_first_round_only
        ):
            return np.zeros_like(self.was_here)
        return self.was_here


def candidates_of(cycle: Cycle) -> Candidates:
    """Run the filters and the scores of a cycle over the whole fleet."""
    profile = profile_of(cycle)
    strategy, constraints = profile.strategy, cycle.policy.topology_spread_constraints
    passes = filter_columns(cycle, profile)
    failed = _verdicts(cycle, passes)
    affinity = profile.preference.affinity(cycle, failed == 0)
    return Candidates(
        strategy=strategy,
        constraints=constraints,
        groups=strategy.groups(SpreadInput(cycle.fleet, constraints, passes)),
        failed=failed,
        affinity=affinity,
        preference=profile.preference.ranking(cycle, failed == 0, affinity),
        was_here=stickiness(cycle),
        placed=cycle.placed,
    )


def verdicts(cycle: Cycle) -> Verdicts:
    """Run every filter of the profile; bit k of a cluster is set when filter k rules it out."""
    return _verdicts(cycle, filter_columns(cycle, profile_of(cycle)))


def filter_columns(cycle: Cycle, profile: Profile) -> dict[str, Bools]:
    """Return, by the name of each filter of the profile, which clusters pass it."""
    return {rule.name: rule.passes(cycle) for rule in profile.filters}


def _verdicts(cycle: Cycle, passes: Mapping[str, Bools]) -> Verdicts:
    failed = np.zeros(len(cycle.fleet), dtype=np.uint8)
    for bit, column in enumerate(passes.values()):
        failed |= np.where(column, 0, 1 << bit).astype(np.uint8)
    return failed


def preference_order(candidates: Candidates, was_here: Ints, picks: Codes) -> Ints:
    """Return the positions of the clusters that pass the filters, best first, without the spread."""
    passes = candidates.passes.copy()
    passes[picks] = False
    positions = np.nonzero(passes)[0]
    columns = candidates.strategy.rank(
        spread=(np.zeros(len(positions), dtype=np.int64),),
        preference=candidates.preference[positions],
        was_here=was_here[positions],
    )
    return candidates.in_order(positions, columns)


@dataclass(frozen=True)
class Picks:
    """The positions picked, in order, with the columns of the spread score that each had in its round.

    `ran_dry`: a last round was evaluated and found no candidate. `has_next`: whether one more could be
    picked, None where the picker does not know.
    """

    positions: Codes
    spread: tuple[Scores, ...]
    ran_dry: bool
    has_next: bool | None = None


def descending(keys: Sequence[Ints | Floats]) -> Ints:
    """Return places ordered by the keys, the first key first, each descending; the later place wins a tie."""
    size = len(keys[0])
    if not size:
        return np.zeros(0, dtype=np.int64)
    packed: Ints = np.zeros(size, dtype=np.int64)
    room = size
    for key in keys:
        if key.dtype != np.int64:
            return np.lexsort(tuple(reversed(keys)))[::-1]
        low, high = int(key.min()), int(key.max())
        room *= high - low + 1
        if room >= 1 << 62:
            return np.lexsort(tuple(reversed(keys)))[::-1]
        packed = packed * (high - low + 1) + (key - low).astype(np.int64)
    if room <= size << 16:
        # A stable sort of 16 bits is a radix sort.
        return np.argsort(packed.astype(np.uint16), kind="stable")[::-1]
    return np.argsort(packed * size + np.arange(size))[::-1]


def malformed_properties(cycle: Cycle) -> tuple[Malformed, ...]:
    """Return the values that terms reach or sorters need and that are no quantities, each once, in order."""
    policy, fleet = cycle.policy, cycle.fleet
    is_strict = profile_of(cycle).fails_on_malformed_property
    found = [
        *match_any_term(policy.required_terms, fleet, splits_names=is_strict).malformed
    ]
    if policy.placement_type is PlacementType.PICK_N:
        everywhere = np.ones(len(fleet), dtype=np.bool_)
        for term in policy.preferred_terms:
            # A released hub reads the range of every sorter, of weight 0 too.
            if term.preference.property_sorter is not None and (
                term.weight or is_strict
            ):
                name = term.preference.property_sorter.name
                found += malformed_values(
                    name, fleet, among=everywhere, splits_names=is_strict
                )
    return tuple(dict.fromkeys(found))
