"""Spread strategy of the semantics `kubernetes`: PodTopologySpread with clusters as nodes, bindings as pods.

Its formulas are those of KEP-895 and later releases (`spec/other-schedulers.md` 3 and 6.6).
"""

from collections.abc import Sequence
from functools import reduce
from math import inf, log
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clusters.columns import ABSENT, Bools, Floats, Ints
from placements.engine.scheduling.spread.base import (
    CellBest,
    ConstraintVerdict,
    Groups,
    IncrementalRanker,
    MissingKeyPolicy,
    RankerInput,
    RoundState,
    Scores,
    SkewProjection,
    SpreadInput,
    SpreadStrategy,
    at_entries,
    cells_by_group,
    is_hard,
    is_reached,
    places,
)
from placements.manifests.policy import InclusionPolicy, TopologySpreadConstraint

BEST = 100
SPREAD_WEIGHT = 2  # of PodTopologySpread in the default profile
_Cost = TypeVar("_Cost", float, NDArray[np.float64])


def smallest_counted(constraint: TopologySpreadConstraint, counts: Ints) -> int:
    """Return the smallest count, which is 0 while there are fewer domains than minDomains."""
    if len(counts) < (constraint.min_domains or 1):
        return 0
    return int(counts.min())


def is_too_many(constraint: TopologySpreadConstraint, counts: Ints) -> Bools:
    """Return the domains in which one more would exceed the smallest by more than maxSkew."""
    return counts + (1 - smallest_counted(constraint, counts)) > constraint.max_skew


def soft_cost(constraint: TopologySpreadConstraint, count: _Cost, groups: int) -> _Cost:
    """Return the cost of `count` clusters in a domain while clusters of `groups` domains contend."""
    return count * log(groups + 2) + (constraint.max_skew - 1)


def rounded(costs: Floats) -> Floats:
    """Round half away from zero to whole numbers; costs are never negative."""
    whole: Floats = np.floor(costs + 0.5)
    return whole


def normalised(costs: Floats, largest: float, smallest: float) -> Floats:
    """Return whole costs as scores, 100 for no cost; exact below 2^53 divided by 100."""
    score: Floats = largest + smallest - costs
    score *= BEST
    score /= largest
    return np.floor(score, out=score)


_EXACT = 1 << 52  # whole numbers below it are exact as floats


class KubernetesRanker:
    """One number ranks each cell: twice the spread score plus the affinity score, then the name.

    The costs are added up in every round, since one pick can move the largest or smallest of them, by which
    all are normalized; the contenders are computed again only where a limit or an empty cell may change it.
    """

    def __init__(self, field: RankerInput) -> None:
        size = len(field.positions)
        pairs = list(zip(field.constraints, field.groups, field.counts, strict=True))
        self.soft = [_Soft(*each) for each in pairs if not is_hard(each[0])]
        self.hard = [_Hard(*each) for each in pairs if is_hard(each[0])]
        self.unit = _unit(field)
        self.base: Floats = field.preference.astype(np.float64) * self.unit - field.positions
        self.left = np.ones(size, dtype=np.bool_)
        self.has_keys = np.ones(size, dtype=np.bool_)
        for one in self.soft:
            self.has_keys &= one.groups.codes != ABSENT
        self.all_have_keys = bool(self.has_keys.all())
        self.top = np.where(self.has_keys, float(BEST), 0.0)
        self.costs, self.spare = np.zeros(size), np.zeros(size)
        self.score: Floats = np.zeros(size)
        self._find_contenders()

    @staticmethod
    def holds(field: RankerInput) -> bool:
        """Return whether the numbers of a run fit into floats without loss."""
        return (SPREAD_WEIGHT * BEST + field.widest + 1) * _unit(field) < _EXACT

    def best(self) -> int | None:
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
        return [int(self.score[cell])]

    def take(self, cell: int, successor: CellBest | None) -> None:
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
        self.uncounted = np.where(contends & self.has_keys, 0.0, inf)
        for one in self.soft:
            one.reach(contends)

    def _scores(self) -> Floats:
        """Return the score of every cell; those that do not contend have any number."""
        # Add the costs in the order of the constraints, which fixes the last bit.
        total = self.soft[0].part
        for one in self.soft[1:]:
            total = np.add(total, one.part, out=self.costs)
        costs = rounded(total)

        largest = np.maximum.reduce(np.subtract(costs, self.uncounted, out=self.spare))
        if largest <= 0:
            return self.top
        smallest = np.minimum.reduce(np.add(costs, self.uncounted, out=self.spare))
        score = normalised(costs, largest, smallest)
        if not self.all_have_keys:
            score *= self.has_keys
        return score


class _Soft:
    """What one more costs in each cell for a soft constraint: nothing in a cell without a domain."""

    def __init__(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> None:
        self.constraint, self.groups = constraint, groups
        self.counts: list[int] = counts.tolist()
        self.places = places(groups.codes, len(groups))
        self.place_of: list[int] = self.places.tolist()
        self.cells_of = cells_by_group(groups.codes, len(groups))
        self.reached = 0
        self.part: Floats = np.zeros(len(self.places))

    def reach(self, contends: Bools) -> None:
        """Count the domains of the contenders, by which the cost of all is weighted."""
        reached = int(np.count_nonzero(is_reached(self.places[contends], len(self.counts))))
        if reached != self.reached:
            self.reached = reached
            costs = soft_cost(self.constraint, np.array(self.counts, dtype=np.float64), reached)
            self.part = np.append(costs, 0.0)[self.places]

    def add(self, cell: int) -> None:
        group = self.place_of[cell]
        if group < len(self.counts):
            self.counts[group] = count = self.counts[group] + 1
            self.part[self.cells_of[group]] = soft_cost(self.constraint, count, self.reached)


class _Hard:
    """Which domains of a hard constraint admit one more; its last place, for cells in no domain, does not."""

    def __init__(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> None:
        self.constraint, self.counts = constraint, counts.copy()
        self.places = places(groups.codes, len(groups))
        self.place_of: list[int] = self.places.tolist()
        self.admits = np.zeros(len(groups) + 1, dtype=np.bool_)
        self._judge()

    def add(self, cell: int) -> None:
        """Count one more in the domain of a cell, which is in one: it was admitted."""
        self.counts[self.place_of[cell]] += 1
        self._judge()

    def _judge(self) -> None:
        np.logical_not(is_too_many(self.constraint, self.counts), out=self.admits[:-1])


def _unit(field: RankerInput) -> int:
    """Return the value of one point, so that positions only break ties."""
    return 1 << field.size.bit_length()


class KubernetesSpread(SpreadStrategy):
    """Hard constraints filter by count + 1 − smallest; soft ones score 0 to 100, weighted by ln."""

    name = "kubernetes"
    rank_names: tuple[str, ...] = ("score",)
    hard_ones_score = False

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Form domains of the clusters that have all keys of their kind and that the policies count."""
        return tuple(_groups(one, spread_input) for one in spread_input.constraints)

    def relevant_fields(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """All of them; minDomains only where the constraint is hard."""
        soft = {"maxSkew", "nodeAffinityPolicy", "nodeTaintsPolicy"}
        return frozenset(soft | {"minDomains"} if is_hard(constraint) else soft)

    def missing_key(self, constraint: TopologySpreadConstraint) -> MissingKeyPolicy:
        """Forbid it, or score it lowest."""
        return MissingKeyPolicy.EXCLUDED if is_hard(constraint) else MissingKeyPolicy.LAST

    def project(self, constraint: TopologySpreadConstraint, _groups: Groups, counts: Ints) -> SkewProjection:
        """Compare with the smallest domain, or with 0 while there are fewer domains than minDomains."""
        smallest = np.full(len(counts), smallest_counted(constraint, counts), dtype=np.int64)
        return SkewProjection(smallest, counts + 1 - smallest, is_skew=False)

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Forbid what would exceed the smallest domain by more than maxSkew, and without a hard key."""
        nothing = np.zeros(len(state.left), dtype=np.bool_)
        verdicts = []
        for constraint, groups, counts in state.parts:
            if is_hard(constraint):
                forbids = at_entries(is_too_many(constraint, counts), groups, missing_key=True)
                verdicts.append(ConstraintVerdict(forbids, forbids))
            else:
                verdicts.append(ConstraintVerdict(nothing, nothing))
        return verdicts

    def scores(self, state: RoundState, contends: Bools) -> list[Scores]:
        """Return each soft one's cost, count times ln(domains + 2) plus maxSkew - 1, no hard ones."""
        return [_cost(constraint, groups, counts, contends) for constraint, groups, counts in state.parts]

    def combine(self, state: RoundState, scores: Sequence[Scores], contends: Bools) -> tuple[Scores, ...]:
        """Normalize the summed costs to 0 (worst) to 100 over the contenders that have every soft key."""
        soft = [index for index, one in enumerate(state.constraints) if not is_hard(one)]
        size = len(state.left)
        if not soft:
            return (np.zeros(size, dtype=np.int64),)
        has_keys = np.logical_and.reduce([state.groups[index].codes != ABSENT for index in soft])
        costs = rounded(reduce(np.add, [scores[index] for index in soft]).astype(np.float64, copy=False))
        counted = costs[has_keys & contends]
        largest, smallest = counted.max(initial=0), counted.min(initial=inf)
        if largest == 0:
            return (np.where(has_keys, BEST, 0),)
        return (np.where(has_keys, normalised(costs, largest, smallest), 0).astype(np.int64),)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, **_was_here: Ints
    ) -> tuple[Scores, ...]:
        """Rank by twice the spread score plus the affinity score; *was here* plays no part."""
        return (SPREAD_WEIGHT * spread[0] + preference,)

    def ranker(self, field: RankerInput) -> IncrementalRanker | None:
        return KubernetesRanker(field) if KubernetesRanker.holds(field) else None


def _groups(constraint: TopologySpreadConstraint, spread_input: SpreadInput) -> Groups:
    sort = is_hard(constraint)
    counts = np.ones(len(spread_input.fleet), dtype=np.bool_)
    for one in spread_input.constraints:
        if is_hard(one) == sort:
            counts &= spread_input.fleet.label(one.topology_key).is_present
    if constraint.node_affinity_policy is not InclusionPolicy.IGNORE:
        counts &= spread_input.passes["affinity"]
    if constraint.node_taints_policy is InclusionPolicy.HONOR:
        counts &= spread_input.passes["taints"] & spread_input.passes["eligibility"]
    column = spread_input.fleet.label(constraint.topology_key)
    occurring = np.unique(column.codes[counts])
    number_of = np.full(len(column.values) + 1, ABSENT, dtype=np.int32)
    number_of[occurring] = np.arange(len(occurring), dtype=np.int32)
    codes = np.where(counts, number_of.take(column.codes), ABSENT).astype(np.int32)
    return Groups(tuple(column.values[code] for code in occurring.tolist()), codes)


def _cost(constraint: TopologySpreadConstraint, groups: Groups, counts: Ints, contends: Bools) -> Scores:
    if is_hard(constraint):
        return np.zeros(len(groups.codes), dtype=np.float64)
    domains = int(np.count_nonzero(is_reached(groups.codes[contends], len(groups))))
    return at_entries(soft_cost(constraint, counts.astype(np.float64), domains), groups, missing_key=0)
