"""A bounded search for a set of clusters that the one-at-a-time loop cannot reach."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from placements.scheduling.columns import ABSENT, Bools
from placements.scheduling.decision import Decision
from placements.scheduling.spread.base import Keyless, is_hard, unevenness

_MOST_CELLS = 400  # the search goes one call deeper per cell


@dataclass(frozen=True, slots=True)
class LargerSet:
    """What the search found.

    `clusters` is a set to pick that is larger than the run's and breaks no hard limit, None when there
    is none or none was found; `is_settled` says that the search came to its end, so None means impossible.
    """

    clusters: tuple[str, ...] | None
    is_settled: bool


def find_larger_set(decision: Decision, *, most_steps: int) -> LargerSet:
    """Search sets of candidates, the wanted size first, for one whose skews all stay within the limits."""
    search = _Search(decision, most_steps)
    if len(search.cells) > _MOST_CELLS:
        return LargerSet(None, is_settled=False)
    found = len(decision.chosen)
    wanted = (decision.cycle.policy.number_of_clusters or 0) - len(decision.kept)
    for size in range(min(wanted, search.available), found, -1):
        taken = search.find(size)
        if taken is not None:
            return LargerSet(search.names(taken), is_settled=True)
        if search.steps_left <= 0:
            return LargerSet(None, is_settled=False)
    return LargerSet(None, is_settled=True)


class _Search:
    """Depth first over cells of equal clusters: how many to take of each."""

    def __init__(self, decision: Decision, most_steps: int) -> None:
        candidates = decision.candidates
        assert candidates is not None  # noqa: S101 -- only called for a decision with rounds
        self.steps_left = most_steps
        self.fleet_names = decision.cycle.fleet.names
        hard = [index for index, one in enumerate(candidates.constraints) if is_hard(one)]
        self.strategy = candidates.strategy
        self.judged = [(candidates.constraints[index], candidates.groups[index]) for index in hard]
        starts = candidates.starting_counts()
        self.counts = [starts[index] for index in hard]
        columns = [candidates.groups[index].codes.tolist() for index in hard]
        positions = np.nonzero(self._may_be_taken(candidates.passes))[0].tolist()
        keyed = sorted((tuple(column[position] for column in columns), position) for position in positions)
        by_cell = groupby(keyed, key=lambda pair: pair[0])
        self.cells = [(key, [position for _, position in members]) for key, members in by_cell]
        self.available = len(positions)

    def find(self, size: int) -> list[int] | None:
        """Give how many clusters to take of each cell, or None."""
        return self._take(0, size, self.available)

    def names(self, taken: list[int]) -> tuple[str, ...]:
        """Name the clusters of a solution, of each cell those whose names rank highest."""
        chosen = (members[-count:] for (_, members), count in zip(self.cells, taken, strict=True) if count)
        return tuple(sorted(self.fleet_names[position] for members in chosen for position in members))

    def _take(self, cell: int, size: int, available: int) -> list[int] | None:
        if self.steps_left <= 0 or size > available:
            return None
        self.steps_left -= 1
        if cell == len(self.cells):
            return [] if self._is_within_limits() else None
        key, members = self.cells[cell]
        for count in range(min(len(members), size), -1, -1):
            self._count(key, count)
            rest = self._take(cell + 1, size - count, available - len(members))
            self._count(key, -count)
            if rest is not None:
                return [count, *rest]
        return None

    def _count(self, key: tuple[int, ...], by: int) -> None:
        for counts, group in zip(self.counts, key, strict=True):
            if group != ABSENT:
                counts[group] += by

    def _may_be_taken(self, passes: Bools) -> Bools:
        """Leave out the clusters without a key, where a hard constraint takes none of them."""
        found = passes.copy()
        for constraint, groups in self.judged:
            if self.strategy.keyless(constraint) is Keyless.EXCLUDED:
                found &= groups.codes != ABSENT
        return found

    def _is_within_limits(self) -> bool:
        return all(
            unevenness(counts, self.strategy.outlook(constraint, groups, counts)) <= constraint.max_skew
            for counts, (constraint, groups) in zip(self.counts, self.judged, strict=True)
        )
