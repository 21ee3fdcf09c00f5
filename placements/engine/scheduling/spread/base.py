"""The interface of spread strategies, and the values that they return.

Filters, preference, the greedy loop, the record and its replay are shared by all strategies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from clusters.columns import ABSENT, Bools, Codes, Ints
from clusters.fleet import Fleet
from placements.manifests.policy import TopologySpreadConstraint, WhenUnsatisfiable

DIGITS = 9
"""Sums of fractions that agree to this number of decimals are equal, in whatever order they were added."""
SOFT_VIOLATION_SCORE = -1000
Scores: TypeAlias = NDArray[np.int64] | NDArray[np.float64]
Number = TypeVar("Number", np.int64, np.float64, np.bool_)


@dataclass(frozen=True)
class Groups:
    """The domains of one constraint: their names, and for each cluster its domain or ABSENT.

    Groups of the same family are siblings, those above the smallest of which count; without `families` all
    are. They are in the order of their families, some of which may have no domain. `family_of` has for
    each cluster the family that it is in, or would be in if it had the key. `weights` are shares of the
    picks, where a constraint defines unequal ones.

    What is cached here does not change from round to round.
    """

    values: tuple[str, ...]
    codes: Codes
    families: Ints | None = None
    family_of: Ints | None = None
    weights: tuple[int, ...] = ()

    @cached_property
    def siblings(self) -> Ints:
        """Return for each domain the number of its family."""
        return (
            np.zeros(len(self.values), dtype=np.int64)
            if self.families is None
            else self.families
        )

    @cached_property
    def first_siblings(self) -> Ints:
        """Return the first domain of each family that has one."""
        return np.flatnonzero(np.diff(self.siblings, prepend=-1))

    @cached_property
    def is_present(self) -> Bools:
        """Return which clusters are in a domain."""
        return np.not_equal(self.codes, ABSENT)

    @cached_property
    def is_complete(self) -> bool:
        return bool(np.not_equal(self.codes, ABSENT).all())

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Return the codes in the width that numpy indexes with."""
        return self.codes.astype(np.intp)

    def of_siblings(self, reduction: np.ufunc, by_group: Ints) -> Ints:
        """Return for each domain the reduction of its family's values, such as the smallest."""
        by_family = reduction.reduceat(by_group, self.first_siblings)
        return by_family.take(self.family_places)

    @cached_property
    def family_places(self) -> Ints:
        """Return for each domain the place of its family among those that have one."""
        return np.repeat(
            np.arange(len(self.first_siblings)),
            np.diff(self.first_siblings, append=len(self)),
        )

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _by_group(self) -> tuple[NDArray[np.intp], Codes, NDArray[np.intp]]:
        """Return the clusters by domain, the domains that have any, and where each of them begins."""
        order = np.argsort(self.codes, kind="stable")[
            np.count_nonzero(~self.is_present) :
        ]
        occupied, starts = np.unique(self.codes[order], return_index=True)
        return order, occupied, starts

    def reached(self, among: Bools) -> Codes:
        """Return the domains that have one of these clusters."""
        order, occupied, starts = self._by_group
        return occupied[np.logical_or.reduceat(among.take(order), starts)]

    def count(self, positions: Codes | Ints) -> Ints:
        """Count how many of the clusters at these positions are in each domain."""
        if not len(positions):
            return np.zeros(len(self.values), dtype=np.int64)
        bins = self.codes[positions] - ABSENT
        return np.bincount(bins, minlength=len(self) + 1)[1:].astype(np.int64)


@dataclass(frozen=True, slots=True)
class SkewLevels:
    """Counts of one constraint's domains: all that a verdict on the next pick depends on.

    `has_lone_smallest`: exactly one domain has the smallest count.
    """

    smallest: int
    largest: int
    has_lone_smallest: bool
    groups: int

    @property
    def skew(self) -> int:
        return self.largest - self.smallest


def levels_of(counts: Ints) -> SkewLevels:
    """Return the levels of the counts per domain; no domains at all have skew 0."""
    if not len(counts):
        return SkewLevels(0, 0, has_lone_smallest=False, groups=0)
    # Of few numbers, a place is found in a quarter of the time of the number there.
    smallest, largest = counts.item(counts.argmin()), counts.item(counts.argmax())
    lone = int(np.count_nonzero(counts == smallest)) == 1
    return SkewLevels(smallest, largest, has_lone_smallest=lone, groups=len(counts))


@dataclass(frozen=True)
class SkewAfterPick:
    """The skew after one more cluster, for domains that now have `counts` (an array)."""

    counts: Ints
    levels: SkewLevels

    @cached_property
    def after(self) -> Ints:
        """Return the skew with one more cluster in the domain."""
        is_smallest = np.equal(self.counts, self.levels.smallest)
        raised = np.logical_and(is_smallest, self.levels.has_lone_smallest).astype(
            np.int64
        )
        return np.maximum(self.counts + 1, self.levels.largest) - (
            raised + self.levels.smallest
        )

    @cached_property
    def change(self) -> Ints:
        """Return by how much the skew would change: −1, 0 or +1."""
        return self.after - self.levels.skew


@dataclass(frozen=True)
class SpreadInput:
    """What a strategy may read when it forms the domains; `passes` are the filters' columns by name."""

    fleet: Fleet
    constraints: tuple[TopologySpreadConstraint, ...]
    passes: Mapping[str, Bools]

    @property
    def all_pass(self) -> Bools:
        passes = np.ones(len(self.fleet), dtype=np.bool_)
        for column in self.passes.values():
            passes &= column
        return passes


@dataclass(frozen=True)
class RoundState:
    """One round as a strategy sees it.

    Entries are clusters, or cells of clusters that are in the same domains; `left` marks those that pass
    the filters and were not picked yet. Counts are per domain, a list entry per constraint.
    """

    constraints: tuple[TopologySpreadConstraint, ...]
    groups: tuple[Groups, ...]
    counts: tuple[Ints, ...]
    left: Bools

    @property
    def parts(self) -> Iterator[tuple[TopologySpreadConstraint, Groups, Ints]]:
        return zip(self.constraints, self.groups, self.counts, strict=True)

    @cached_property
    def after_picks(self) -> list[SkewAfterPick]:
        """Return, by constraint, the skew after one more pick in each domain."""
        return [SkewAfterPick(counts, levels_of(counts)) for counts in self.counts]

    @cached_property
    def smallest_siblings(self) -> list[Ints]:
        """Return, by constraint, the smallest count of each domain's family."""
        pairs = zip(self.groups, self.counts, strict=True)
        return [groups.of_siblings(np.minimum, counts) for groups, counts in pairs]


@dataclass(frozen=True, slots=True)
class SkewProjection:
    """For each domain: the count to compare with, and the result after one more.

    `after` is what maxSkew limits: the skew with one more, or how far the domain would be above `smallest`.
    """

    smallest: Ints
    after: Ints
    is_skew: bool


def is_limit(constraint: TopologySpreadConstraint, projected: SkewProjection) -> bool:
    """Return whether maxSkew limits anything; a soft one does only where it is the skew that is scored."""
    return is_hard(constraint) or projected.is_skew


def imbalance(counts: Ints, projected: SkewProjection) -> int:
    """Return how far the fullest domain is above what it is compared with.

    That is the smallest domain; the emptiest sibling where domains are nested; 0 with too few of them for
    minDomains.
    """
    return int((counts - projected.smallest).max(initial=0))


class ConstraintVerdict(NamedTuple):
    """One constraint's verdict on every entry: does a pick break the limit, and is it forbidden?"""

    violates: Bools
    forbids: Bools


class MissingKeyPolicy(StrEnum):
    """How a constraint treats a cluster without the topology key."""

    UNLIMITED = "unlimited"
    EXCLUDED = "excluded"
    LAST = "last"
    OWN_GROUP = "own-group"


class SpreadStrategy(Protocol):
    """The spread rules of a semantics: eight methods, each evaluated for whole columns.

    `rank_names` name the columns of `rank`, the first for all columns of the spread score; a tie is
    decided by the name, larger or smaller by `smaller_name_wins`. `hard_ones_score`: hard constraints
    score as well as forbid. `combines_scores`: `combine` reads `scores`, which are only reported otherwise. A
    GroupStrategy is picked faster.
    """

    name: str
    smaller_name_wins: bool = True
    has_score_list: bool = False
    hard_ones_score: bool = True
    combines_scores: bool = True
    was_here_in_first_round_only: bool = False

    @property
    def rank_names(self) -> tuple[str, ...]:
        """Return the names of the columns of `rank`."""

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Return the domains of each constraint."""

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """Return the count of each domain before the first pick; `placed`: those with a current binding."""
        return groups.count(placed)

    def relevant_fields(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """Return the fields of a constraint that have an effect, besides its key and `whenUnsatisfiable`."""

    def missing_key(self, constraint: TopologySpreadConstraint) -> MissingKeyPolicy:
        """Return how a cluster without the topology key is treated."""

    def project(
        self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints
    ) -> SkewProjection:
        """Return the count or skew of each domain after one more pick there."""

    def projections(self, state: RoundState) -> list[SkewProjection]:
        """Return the projection of each constraint in a round."""
        return [self.project(*part) for part in state.parts]

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Return, by constraint, which entries break its limit and which it forbids."""

    def scores(self, state: RoundState, contends: Bools) -> list[Scores]:
        """Score every entry by constraint, larger is better; `contends`: entries that can still be picked."""

    def combine(
        self, state: RoundState, scores: Sequence[Scores], contends: Bools
    ) -> tuple[Scores, ...]:
        """Combine the scores of the constraints into the columns of one spread score."""

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, was_here: Ints
    ) -> tuple[Scores, ...]:
        """Return the columns that rank the candidates, the first one first; larger is better."""

    def stops_without_candidate(self) -> bool:
        """Return whether a round without a candidate ends the cycle with what was picked; else it fails."""
        return True


class DomainRules(Protocol):
    """Rules that judge a domain by its count among others.

    They may depend on `after_pick` only through each count's distance from the smallest, the skew and
    `has_lone_smallest`: the picker caches the results per such combination.
    """

    def violates(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Bools:
        """Return the counts at which one more breaks the limit."""

    def score(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Ints:
        """Score one more at each count."""


@runtime_checkable
class GroupStrategy(DomainRules, Protocol):
    """A strategy whose score is the sum of the scores of the domains, by constraint."""

    was_here_in_first_round_only: bool

    def keyless_score(self, constraint: TopologySpreadConstraint) -> int | None:
        """Return the score of a cluster without the key, None when it is out."""


@runtime_checkable
class LevelRules(DomainRules, Protocol):
    """Rules that stretch one number: a sum of the scores of domains, each among its siblings.

    A level counts `unit` times as much as the one below.
    """

    unit: int

    def sums_levels(self, groups: Sequence[Groups], candidates: Bools) -> bool:
        """Return whether they do, with these domains."""

    def stretch(self, numbers: Scores, contends: Bools) -> Scores:
        """Return the spread score of every entry, given its number."""


def reported_score(
    values: list[float], strategy: SpreadStrategy
) -> float | tuple[float, ...]:
    """Return a spread score as it is reported: a number, or a list with a number per level."""
    return tuple(values) if strategy.has_score_list else values[0]


def prefers_missing_key(
    strategy: SpreadStrategy, constraint: TopologySpreadConstraint
) -> bool:
    """Return whether, with one domain only, a cluster in none ranks before those in it."""
    if not isinstance(strategy, GroupStrategy):
        return False
    counts, without = np.zeros(1, dtype=np.int64), strategy.keyless_score(constraint)
    alone = int(strategy.score(constraint, SkewAfterPick(counts, levels_of(counts)))[0])
    return without is not None and without > alone


def is_hard(constraint: TopologySpreadConstraint) -> bool:
    return constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE


def at_entries(
    by_group: NDArray[Number], groups: Groups, *, missing_key: int
) -> NDArray[Number]:
    """Return for each entry the value of its domain, and `missing_key` where it is in none."""
    if groups.is_complete:
        return by_group.take(groups.places)
    table = np.empty(len(by_group) + 1, dtype=by_group.dtype)
    table[:-1] = by_group
    table[-1] = missing_key
    return table.take(groups.places)


# Cells: the clusters that are in the same domain of every constraint.


def cells_of(columns: list[Codes]) -> tuple[Ints, Ints, Ints, Codes]:
    """Form a cell of each combination of domains that occurs, given the domains of every cluster.

    Return the clusters cell by cell, the place of the first of each cell among them, that behind its last,
    and the domains of each cell by constraint.
    """
    cell_of = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        cell_of = cell_of * (int(column.max(initial=0)) - low + 1) + (column - low)
        cell_of = _renumber(cell_of)
    sizes = np.bincount(cell_of)
    # A stable sort of 16 bits is a radix sort.
    is_narrow = len(sizes) <= 1 << 16
    members = np.argsort(
        cell_of.astype(np.uint16) if is_narrow else cell_of, kind="stable"
    )
    ends = np.cumsum(sizes)
    firsts = ends - sizes
    domains = np.stack([column[members[firsts]] for column in columns])
    return members, firsts, ends, domains


def _renumber(codes: Ints) -> Ints:
    """Number the values that occur from 0 without gaps, keeping their order."""
    room = int(codes.max(initial=0)) + 1
    if room > 4 * len(codes) + 1024:
        return np.unique(codes, return_inverse=True)[1]
    occurs = np.zeros(room, dtype=np.bool_)
    occurs[codes] = True
    return (np.cumsum(occurs) - 1)[codes]


def cells_by_group(group_of_cell: Codes | Ints, groups: int) -> list[Ints]:
    """Return the cells of each domain; last those in none, which have a negative code."""
    by_group = np.argsort(group_of_cell, kind="stable")
    bounds = np.searchsorted(group_of_cell[by_group], np.arange(groups + 1)).tolist()
    ranges = [*pairwise(bounds), (0, bounds[0])]
    return [by_group[start:end] for start, end in ranges]
