"""What a spread strategy answers, and the values that it answers with.

The eight questions are those of `design/architecture.md`. All else, filters, preference, the greedy
loop, the record and its replay, is shared by every strategy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from placements.scheduling.columns import ABSENT, Bools, Codes, Ints
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import TopologySpreadConstraint

SOFT_VIOLATION_SCORE = -1000


@dataclass(frozen=True)
class Groups:
    """The groups of one constraint: their names, and for each cluster its group or ABSENT."""

    values: tuple[str, ...]
    codes: Codes

    def __len__(self) -> int:
        return len(self.values)

    def count(self, positions: Codes | Ints) -> Ints:
        """Count how many of the clusters at these positions are in each group."""
        codes = self.codes[positions]
        return np.bincount(codes[codes != ABSENT], minlength=len(self.values)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Levels:
    """How full the groups of one constraint are: all that a verdict on the next pick depends on.

    `has_lone_smallest` says that exactly one group stands at the smallest count.
    """

    smallest: int
    largest: int
    has_lone_smallest: bool
    groups: int

    @property
    def skew(self) -> int:
        """Give the largest minus the smallest count."""
        return self.largest - self.smallest


def levels_of(counts: Ints) -> Levels:
    """Read the levels off the counts per group; no groups at all have skew 0."""
    if not len(counts):
        return Levels(0, 0, has_lone_smallest=False, groups=0)
    smallest, largest = int(counts.min()), int(counts.max())
    lone = int(np.count_nonzero(counts == smallest)) == 1
    return Levels(smallest, largest, has_lone_smallest=lone, groups=len(counts))


@dataclass(frozen=True)
class Prospect:
    """What one more cluster would do to the skew, for groups that now have `counts` (an array)."""

    counts: Ints
    levels: Levels

    @cached_property
    def after(self) -> Ints:
        """Give the skew with one more cluster in the group."""
        is_smallest = np.equal(self.counts, self.levels.smallest)
        raised = np.logical_and(is_smallest, self.levels.has_lone_smallest).astype(np.int64)
        return np.maximum(self.counts + 1, self.levels.largest) - (raised + self.levels.smallest)

    @cached_property
    def change(self) -> Ints:
        """Give by how much the skew would change: −1, 0 or +1."""
        return self.after - self.levels.skew


class SpreadStrategy(Protocol):
    """Whose spread rules apply: eight questions, each answered for whole columns.

    `violates` and `score` may depend on a prospect only through each count's distance from the smallest,
    the skew and `has_lone_smallest`: the picker keeps the answers per such standing.
    """

    name: str
    was_here_in_first_round_only: bool

    def groups(self, constraint: TopologySpreadConstraint, fleet: Fleet) -> Groups:
        """1. Which clusters form the groups?"""

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """2. What are the counts at the start, given the positions of the current bindings?"""

    def keyless_score(self, constraint: TopologySpreadConstraint) -> int | None:
        """3. What may a cluster without the key do? Its score, or None: it is out."""

    def violates(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Bools:
        """4. When does a pick break the limit? A hard constraint forbids such a pick."""

    def score(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Ints:
        """5. How good is a pick for the spread? Larger is better; a forbidden pick's number is unused."""

    def combine(self, scores: Sequence[Ints]) -> Ints:
        """6. How do several constraints combine into one spread score?"""

    def rank(self, *, spread: Ints, affinity: Ints, was_here: Ints) -> tuple[Ints, ...]:
        """7. Which columns rank the candidates, first to last, larger first? The larger name ends a tie."""

    def stops_without_candidate(self) -> bool:
        """8. No candidate is left: keep what was picked and stop (True), or fail the cycle (False)?"""
