"""What a spread strategy answers, and the values that it answers with.

The eight questions are those of `design/architecture.md`. All else, filters, preference, the greedy
loop, the record and its replay, is shared by every strategy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.columns import ABSENT, Bools, Codes, Ints
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import TopologySpreadConstraint, WhenUnsatisfiable

DIGITS = 9
"""Sums of fractions that agree to so many decimals are equal, whatever the order they were added in."""
SOFT_VIOLATION_SCORE = -1000
Scores: TypeAlias = NDArray[np.int64] | NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)


@dataclass(frozen=True)
class Groups:
    """The groups of one constraint: their names, and for each cluster its group or ABSENT.

    Groups of the same family are siblings, those above the smallest of which count; without `families` all
    are. `family_of` gives each cluster the family that it is in, or would be in if it carried the key.
    `weights` are shares of the picks, where a constraint asks for unequal ones.
    """

    values: tuple[str, ...]
    codes: Codes
    families: Ints | None = None
    family_of: Ints | None = None
    weights: tuple[int, ...] = ()

    @property
    def siblings(self) -> Ints:
        """Give each group the number of its family."""
        return np.zeros(len(self.values), dtype=np.int64) if self.families is None else self.families

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


@dataclass(frozen=True)
class Setting:
    """What a strategy may look at when it forms the groups; `passes` are the filters' columns by name."""

    fleet: Fleet
    constraints: tuple[TopologySpreadConstraint, ...]
    passes: Mapping[str, Bools]

    @property
    def all_pass(self) -> Bools:
        """Mark the clusters that pass every filter."""
        passes = np.ones(len(self.fleet), dtype=np.bool_)
        for column in self.passes.values():
            passes &= column
        return passes


@dataclass(frozen=True)
class Race:
    """One round as a strategy sees it.

    Entries are clusters, or cells of clusters that are in the same groups; `left` marks those that pass
    the filters and were not picked yet. Counts are per group, a list entry per constraint.
    """

    constraints: tuple[TopologySpreadConstraint, ...]
    groups: tuple[Groups, ...]
    counts: tuple[Ints, ...]
    left: Bools


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one more in each group would be measured by: the count to compare with, and the result.

    `after` is what maxSkew limits: the skew with one more, or how far the group would be above `smallest`.
    """

    smallest: Ints
    after: Ints
    is_skew: bool


def is_limit(constraint: TopologySpreadConstraint, outlook: Outlook) -> bool:
    """Tell whether maxSkew limits anything; a soft one does only where it is the skew that is scored."""
    return is_hard(constraint) or outlook.is_skew


def unevenness(counts: Ints, outlook: Outlook) -> int:
    """Give how far the fullest group is above what it is compared with.

    That is the smallest group; the emptiest sibling where groups are nested; 0 with too few of them for
    minDomains.
    """
    return int((counts - outlook.smallest).max(initial=0))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one constraint says of every entry: does a pick break the limit, and is it forbidden?"""

    violates: Bools
    forbids: Bools


class Keyless(StrEnum):
    """What a cluster without the topology key may expect of a constraint."""

    UNLIMITED = "unlimited"
    EXCLUDED = "excluded"
    LAST = "last"
    OWN_GROUP = "own-group"


class SpreadStrategy(Protocol):
    """Whose spread rules apply: eight questions, each answered for whole columns.

    `rank_names` name the columns of `rank`, the first standing for as many as the spread score has; a tie
    is ended by the name, larger or smaller as `smaller_name_wins` says. `hard_ones_score` says whether hard
    constraints score as well as forbid. A GroupStrategy is picked faster.
    """

    name: str
    smaller_name_wins: bool
    has_score_list: bool
    hard_ones_score: bool
    was_here_in_first_round_only: bool

    @property
    def rank_names(self) -> tuple[str, ...]:
        """Name the columns of `rank`."""

    def groups(self, setting: Setting) -> tuple[Groups, ...]:
        """1. Which clusters form the groups?"""

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """2. What are the counts at the start, given the positions of the current bindings?"""

    def heeds(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """Name the fields of a constraint that change what it does, beside its key and how hard it is."""

    def keyless(self, constraint: TopologySpreadConstraint) -> Keyless:
        """3., in a word. What may a cluster without the key expect?"""

    def outlook(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> Outlook:
        """4., in numbers. What would one more in each group make?"""

    def verdicts(self, race: Race) -> list[Verdict]:
        """3. and 4. What may a cluster without the key do, and when is a pick forbidden?"""

    def scores(self, race: Race, contends: Bools) -> list[Scores]:
        """5. How good is a pick for each constraint, given who can still be picked? Larger is better."""

    def combine(self, race: Race, scores: Sequence[Scores], contends: Bools) -> tuple[Scores, ...]:
        """6. How do several constraints combine into one spread score, of one number or several?"""

    def rank(self, *, spread: tuple[Scores, ...], preference: Scores, was_here: Ints) -> tuple[Scores, ...]:
        """7. Which columns rank the candidates, first to last, larger first?"""

    def stops_without_candidate(self) -> bool:
        """8. No candidate is left: keep what was picked and stop (True), or fail the cycle (False)?"""


@runtime_checkable
class GroupStrategy(Protocol):
    """A strategy whose score is a sum, over the constraints, of what a group's count says.

    `violates` and `score` may depend on a prospect only through each count's distance from the smallest,
    the skew and `has_lone_smallest`: the picker keeps the answers per such standing.
    """

    was_here_in_first_round_only: bool

    def keyless_score(self, constraint: TopologySpreadConstraint) -> int | None:
        """Give the score of a cluster without the key, None when it is out."""

    def violates(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Bools:
        """Mark the counts at which one more breaks the limit."""

    def score(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Ints:
        """Score one more at each count."""


def prefers_keyless(strategy: SpreadStrategy, constraint: TopologySpreadConstraint) -> bool:
    """Tell whether, with one group only, a cluster in none goes before those in it."""
    if not isinstance(strategy, GroupStrategy):
        return False
    counts, without = np.zeros(1, dtype=np.int64), strategy.keyless_score(constraint)
    alone = int(strategy.score(constraint, Prospect(counts, levels_of(counts)))[0])
    return without is not None and without > alone


def is_hard(constraint: TopologySpreadConstraint) -> bool:
    """Tell whether the constraint forbids, rather than discourages, a violation."""
    return constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE


def at_entries(by_group: NDArray[Number], groups: Groups, *, keyless: int) -> NDArray[Number]:
    """Give each entry the value of its group, and `keyless` where it is in none."""
    last = np.array([keyless], dtype=by_group.dtype)
    return np.concatenate([by_group, last]).take(groups.codes)
