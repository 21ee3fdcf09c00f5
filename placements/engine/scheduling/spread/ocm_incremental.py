"""Incremental rankers of the semantics `ocm`, strict and weighted (`spec/other-schedulers.md` 2.5 and 6.6).

One pick changes the gaps of its domain and of the sibling domains only.
"""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from clusters.columns import ABSENT, Floats, Ints
from placements.engine.scheduling.spread.base import (
    FORBIDDEN,
    OUT,
    CellBest,
    Groups,
    OutOfRoomError,
    RankerInput,
    SpreadStrategy,
    cells_by_group,
    is_hard,
    places,
)
from placements.manifests.policy import TopologySpreadConstraint

TOP_LEVEL = 63
EXACT_LEVELS = 8
"""A float represents this number of levels, six bits each, exactly."""
FULL = 100.0


def level_score(gap: int, lowest: int, highest: int) -> int:
    """Scale a gap to 0 (fullest) to 63 (emptiest) between those of its siblings; all equal is 0."""
    span = highest - lowest
    return TOP_LEVEL * (gap - lowest) // span if span > 0 else 0


def level_scores(gaps: Ints, lowest: Ints, highest: Ints) -> Ints:
    """Do the same for columns."""
    span = highest - lowest
    return np.where(span > 0, TOP_LEVEL * (gaps - lowest) // np.maximum(span, 1), 0)


def stretched(total: Ints | Floats, low: float, high: float) -> Floats:
    """Stretch what lies between low and high to −100 to 100; all equal, or nothing to stretch, is 0."""
    if not low < high:
        return np.zeros(len(total), dtype=np.float64)
    even: Floats = (2 * FULL * (total - low) / (high - low) - FULL).astype(np.float64, copy=False)
    return even


_EMPTY = -(1 << 61)  # a cell without a cluster left
_BITS = 54  # of a whole number that ranks, above which FORBIDDEN starts
_BITS_A_LEVEL = 6


class GapRanker:
    """Strict mode: one whole number ranks each cell, gap by gap, then by the rank of its leader."""

    def __init__(self, field: RankerInput) -> None:
        self.levels = _levels(field)
        rank_bits = field.size.bit_length()
        self.bits = (_BITS - rank_bits) // len(self.levels)
        below = range(len(self.levels) - 1, -1, -1)
        self.units = [1 << (rank_bits + self.bits * place) for place in below]
        self.ranks: list[int] = field.ranks.tolist()
        self.total: Ints = -field.ranks.astype(np.int64)

    def best(self) -> int | None:
        if not len(self.total):
            return None
        cell = int(self.total.argmax())
        return cell if self.total[cell] > OUT else None

    def scores(self, cell: int) -> list[float]:
        return [-level.above(cell) for level in self.levels]

    def take(self, cell: int, successor: CellBest | None) -> None:
        """Count the leader of a cell as picked; move it, and those of its family when their minimum rose."""
        total = self.total
        for level, unit in zip(self.levels, self.units, strict=True):
            for cells, gap, limits in level.add(cell):
                total[cells] += gap * unit + limits * FORBIDDEN
            if level.above(cell) >> self.bits:
                raise OutOfRoomError
        rank = self.ranks[cell]
        if successor is None:
            total[cell] = _EMPTY
        else:
            self.ranks[cell] = successor.rank
            total[cell] += rank - successor.rank


class WeightedRanker:
    """Weighted mode: the levels as one number, normalized over the contenders, which the strategy weighs."""

    def __init__(self, field: RankerInput, strategy: SpreadStrategy) -> None:
        size = len(field.positions)
        self.strategy = strategy
        self.levels = _levels(field)
        self.scales = [
            _Scale(level, groups, 1 << (_BITS_A_LEVEL * place))
            for level, groups, place in zip(
                self.levels, field.groups, range(len(self.levels) - 1, -1, -1), strict=True
            )
        ]
        self.positions, self.preference = field.positions.copy(), field.preference.astype(np.float64)
        self.left = np.ones(size, dtype=np.bool_)
        self.limits = np.zeros(size, dtype=np.int64)
        self.even: Floats = np.zeros(size)
        self.none_here = np.zeros(size, dtype=np.int64)
        self._find_contenders()

    @staticmethod
    def holds(field: RankerInput) -> bool:
        """Return whether the levels fit into a float without loss."""
        return len(field.constraints) <= EXACT_LEVELS

    def best(self) -> int | None:
        if not len(self.positions):
            return None

        total = np.zeros(len(self.positions))
        for scale in self.scales:
            total += scale.values.take(scale.places)
        self.even = stretched(total, (total + self.uncounted).min(), (total - self.uncounted).max())

        columns = self.strategy.rank(spread=(self.even,), preference=self.preference, was_here=self.none_here)
        first = columns[0] + self.barred
        highest = first.max()
        if highest == -inf:
            return None
        best = np.nonzero(first == highest)[0]
        for column in columns[1:]:
            if len(best) > 1:
                values = column[best]
                best = best[values == values.max()]
        return int(best[self.positions[best].argmin()])

    def scores(self, cell: int) -> list[float]:
        return [self.even[cell].item()]

    def take(self, cell: int, successor: CellBest | None) -> None:
        """Count the leader of a cell as picked."""
        has_moved = successor is None
        for level, scale in zip(self.levels, self.scales, strict=True):
            for cells, _, limits in level.add(cell):
                if limits:
                    self.limits[cells] += limits
                    has_moved = True
            scale.follow(cell)
        if successor is None:
            self.left[cell] = False
        else:
            self.positions[cell] = successor.position
            self.preference[cell] = successor.preference
        if has_moved:
            self._find_contenders()

    def _find_contenders(self) -> None:
        contends = self.left & (self.limits == 0)
        self.uncounted = np.where(contends, 0.0, inf)
        self.barred = -self.uncounted


class _Change(NamedTuple):
    """By how much the gap of some cells changes, and how many more limits a pick there would break."""

    cells: Ints
    gap: int
    limits: int


class _Level:
    """One Even constraint: how far each domain is above its emptiest sibling.

    Counts start equal in each family, at zero, and only ever grow by one.
    """

    def __init__(self, constraint: TopologySpreadConstraint, groups: Groups) -> None:
        self.limit = constraint.max_skew if is_hard(constraint) else 0
        self.group_of: list[int] = groups.codes.tolist()
        self.family: list[int] = groups.siblings.tolist()

        members: list[list[int]] = [[] for _ in range(max(self.family, default=-1) + 1)]
        for group, one in enumerate(self.family):
            members[one].append(group)
        self.members = members

        self.count = [0] * len(groups)
        self.smallest = [0] * len(self.members)
        self.largest = [0] * len(self.members)
        self.at_smallest = [len(one) for one in self.members]
        self.cells_of = cells_by_group(groups.codes, len(groups))
        family_of_cell = np.append(groups.siblings, ABSENT)[groups.codes]
        self.cells_in = cells_by_group(family_of_cell, len(self.members))

    def above(self, cell: int) -> int:
        """Return how far the domain of a cell is above its emptiest sibling; 0 without a domain."""
        group = self.group_of[cell]
        return 0 if group == ABSENT else self.count[group] - self.smallest[self.family[group]]

    def add(self, cell: int) -> Iterator[_Change]:
        """Count one more in the domain of a cell; return what changes for which cells."""
        group = self.group_of[cell]
        if group == ABSENT:
            return
        family, before = self.family[group], self.count[group]
        self.count[group] = before + 1
        self.largest[family] = max(self.largest[family], before + 1)
        if before == self.smallest[family]:
            self.at_smallest[family] -= 1
        reaches = before + 1 - self.smallest[family] == self.limit
        yield _Change(self.cells_of[group], -1, int(reaches))
        if not self.at_smallest[family]:
            # Raise the smallest count of a family by one: all gaps close by one, and some limits lift.
            self.smallest[family] = smallest = self.smallest[family] + 1
            self.at_smallest[family] = sum(self.count[one] == smallest for one in self.members[family])
            yield _Change(self.cells_in[family], 1, 0)
            if self.limit:
                for one in self.members[family]:
                    if self.count[one] - smallest == self.limit - 1:
                        yield _Change(self.cells_of[one], 0, -1)


class _Scale:
    """A level's score for each of its domains, and behind them for cells without the key in each family."""

    def __init__(self, level: _Level, groups: Groups, unit: int) -> None:
        family_of = (
            np.zeros(len(groups.codes), dtype=np.int64) if groups.family_of is None else groups.family_of
        )
        families = max(len(level.members), int(family_of.max(initial=0)) + 1)
        self.level, self.unit = level, unit
        self.places = places(groups.codes, len(groups) + family_of)
        self.values: Floats = np.zeros(len(groups) + families)
        self.extremes = [(0, 0)] * families

    def follow(self, cell: int) -> None:
        """Update the score of the cell's domain, and its siblings where the fullest or emptiest changed."""
        level, group = self.level, self.level.group_of[cell]
        if group == ABSENT:
            return
        family = level.family[group]
        smallest, largest = extremes = level.smallest[family], level.largest[family]
        changed = level.members[family] if extremes != self.extremes[family] else [group]
        self.extremes[family] = extremes
        lowest = smallest - largest
        for one in changed:
            self.values[one] = self.unit * level_score(smallest - level.count[one], lowest, 0)
        self.values[len(level.count) + family] = self.unit * level_score(0, lowest, 0)


def _levels(field: RankerInput) -> list[_Level]:
    return [_Level(*pair) for pair in zip(field.constraints, field.groups, strict=True)]
