"""Standings under `kubernetes` semantics: few operations a round, on columns with a number per cell."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.cells import cells_by_group
from placements.scheduling.columns import ABSENT, Bools, Floats, Ints
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import Groups, is_hard
from placements.scheduling.standings.base import Field, Leader, places
from placements.scheduling.standings.kubernetes_rules import (
    BEST,
    SPREAD_WEIGHT,
    is_too_many,
    normalised,
    rounded,
    soft_cost,
)

_EXACT = 1 << 52  # whole numbers below it are exact as floats


class KubernetesStandings:
    """One number ranks each cell: twice the spread score plus the affinity score, then the name.

    The costs are added up in every round, since one pick can move the largest or smallest of them, by which
    all are normalised; who contends is found out again only where a limit or an empty cell may change it.
    """

    def __init__(self, field: Field) -> None:
        size = len(field.positions)
        pairs = list(zip(field.constraints, field.groups, field.counts, strict=True))
        self.soft = [_Soft(*each) for each in pairs if not is_hard(each[0])]
        self.hard = [_Hard(*each) for each in pairs if is_hard(each[0])]
        self.unit = _unit(field)
        self.base: Floats = field.preference.astype(np.float64) * self.unit - field.positions
        self.left = np.ones(size, dtype=np.bool_)
        self.carries = _carry_all([one.groups for one in self.soft], size)
        self.all_carry = bool(self.carries.all())
        self.top = np.where(self.carries, float(BEST), 0.0)
        self.costs, self.spare = np.zeros(size), np.zeros(size)
        self.score: Floats = np.zeros(size)
        self._find_contenders()

    @staticmethod
    def holds(field: Field) -> bool:
        """Tell whether the numbers of a run fit into floats without loss."""
        return _largest_rank(field) * _unit(field) < _EXACT

    def best(self) -> int | None:
        """Give the cell that ranks first."""
        if not len(self.base):
            return None
        if self.soft:
            self.score = self._scores()
        total = self.score * float(SPREAD_WEIGHT * self.unit)
        total += self.base
        if self.hard:
            total += self.barred
        cell = int(total.argmax())
        return None if total[cell] == -inf else cell

    def scores(self, cell: int) -> list[float]:
        """Give the normalised score, 0 to 100."""
        return [int(self.score[cell])]

    def take(self, cell: int, successor: Leader | None) -> None:
        """Count the leader of a cell as picked."""
        for one in self.soft:
            one.add(cell)
        for limit in self.hard:
            limit.add(cell)
        if successor is None:
            self.left[cell] = False
            self.base[cell] = -inf
        else:
            self.base[cell] = successor.preference * self.unit - successor.position
        if successor is None or self.hard:
            self._find_contenders()

    def _find_contenders(self) -> None:
        contends = self.left.copy()
        for limit in self.hard:
            contends &= limit.admits.take(limit.places)
        self.barred = np.where(contends, 0.0, -inf)
        self.uncounted = np.where(contends & self.carries, 0.0, inf)
        for one in self.soft:
            one.reach(contends)

    def _scores(self) -> Floats:
        """Give the score of every cell; those that do not contend have any number."""
        costs = rounded(self._summed())
        largest = np.maximum.reduce(np.subtract(costs, self.uncounted, out=self.spare))
        if largest <= 0:
            return self.top
        smallest = np.minimum.reduce(np.add(costs, self.uncounted, out=self.spare))
        score = normalised(costs, largest, smallest)
        if not self.all_carry:
            score *= self.carries
        return score

    def _summed(self) -> Floats:
        """Add the costs in the order of the constraints, which fixes the last bit."""
        total = self.soft[0].part
        for one in self.soft[1:]:
            total = np.add(total, one.part, out=self.costs)
        return total


class _Soft:
    """What one more costs in each cell for a soft constraint: nothing in a cell without a group."""

    def __init__(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> None:
        self.constraint, self.groups = constraint, groups
        self.counts: list[int] = counts.tolist()
        self.places = places(groups.codes, len(groups))
        self.place_of: list[int] = self.places.tolist()
        self.cells_of = cells_by_group(groups.codes, len(groups))
        self.reached = 0
        self.part: Floats = np.zeros(len(self.places))

    def reach(self, contends: Bools) -> None:
        """Count the groups of those who contend, by which the cost of all is weighed."""
        is_reached = np.zeros(len(self.counts) + 1, dtype=np.bool_)
        is_reached[self.places[contends]] = True
        reached = int(np.count_nonzero(is_reached[:-1]))
        if reached != self.reached:
            self.reached = reached
            costs = soft_cost(self.constraint, np.array(self.counts, dtype=np.float64), reached)
            self.part = np.append(costs, 0.0)[self.places]

    def add(self, cell: int) -> None:
        """Count one more in the group of a cell."""
        group = self.place_of[cell]
        if group < len(self.counts):
            self.counts[group] = count = self.counts[group] + 1
            self.part[self.cells_of[group]] = soft_cost(self.constraint, count, self.reached)


class _Hard:
    """Which groups of a hard constraint admit one more; its last place, for cells in no group, does not."""

    def __init__(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> None:
        self.constraint, self.counts = constraint, counts.copy()
        self.places = places(groups.codes, len(groups))
        self.place_of: list[int] = self.places.tolist()
        self.admits = np.zeros(len(groups) + 1, dtype=np.bool_)
        self._judge()

    def add(self, cell: int) -> None:
        """Count one more in the group of a cell, which is in one: it was admitted."""
        self.counts[self.place_of[cell]] += 1
        self._judge()

    def _judge(self) -> None:
        np.logical_not(is_too_many(self.constraint, self.counts), out=self.admits[:-1])


def _carry_all(groups: list[Groups], size: int) -> NDArray[np.bool_]:
    carries = np.ones(size, dtype=np.bool_)
    for one in groups:
        carries &= one.codes != ABSENT
    return carries


def _unit(field: Field) -> int:
    """Give what one point is worth, so that positions only break ties."""
    return 1 << field.size.bit_length()


def _largest_rank(field: Field) -> float:
    return SPREAD_WEIGHT * BEST + field.widest + 1
