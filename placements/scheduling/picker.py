"""The greedy loop: one pick a round, looking at cells of equal clusters instead of clusters.

A cell holds the clusters that are in the same group of every constraint. Within a cell only the best
ranked cluster can win, so a round compares one number per cell. That number packs the spread score above
the rank of the cell's best cluster, and a pick changes it only in the cells whose group changed its
score. The design and its measurements are in `design/engine-performance.md`, design c. It holds for
strategies that add the constraints' scores up and rank by their sum first.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.candidates import Candidates, is_hard
from placements.scheduling.columns import Codes, Ints, descending
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.rounds import Round
from placements.scheduling.spread.base import Levels, Prospect, SpreadStrategy, levels_of

_SCORE_UNIT = 1 << 32  # a spread score of 1; ranks, which are below it, break ties
_FORBIDDEN = -(1 << 55)  # once per hard constraint that a pick would break; 60 of them fit
_EMPTY = -(1 << 61)  # a cell without a cluster left
_NOBODY = -(1 << 54)  # no allowed pick is as low as this
_FEW = 2  # up to so many changed groups are updated one by one


@dataclass(frozen=True)
class Picks:
    """The positions picked, in order, with the spread score that each had in its round.

    `ran_dry` says that a last round was evaluated and found no candidate.
    """

    positions: Codes
    spread_scores: Ints
    ran_dry: bool


def pick(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters: all at once without spread constraints, else one a round."""
    if not candidates.constraints:
        best = Round(candidates, 1, np.zeros(0, dtype=np.int32)).ranked[:wanted].astype(np.int32)
        return Picks(best, np.zeros(len(best), dtype=np.int64), ran_dry=len(best) < wanted)
    if candidates.strategy.was_here_in_first_round_only and candidates.was_here.any():
        return _first_round_apart(candidates, wanted)
    return _Greedy(candidates, candidates.was_here, np.zeros(0, dtype=np.int32)).run(wanted)


def _first_round_apart(candidates: Candidates, wanted: int) -> Picks:
    first = Round(candidates, 1, np.zeros(0, dtype=np.int32))
    if not len(first.ranked):
        return Picks(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), ran_dry=True)
    winner = first.ranked[:1].astype(np.int32)
    rest = _Greedy(candidates, candidates.was_here_in(2), winner).run(wanted - 1)
    scores = np.concatenate([first.spread[winner], rest.spread_scores])
    return Picks(np.concatenate([winner, rest.positions]), scores, rest.ran_dry)


class _Greedy:
    """The state of a run: a total per cell, kept up to date by one track per constraint."""

    def __init__(self, candidates: Candidates, was_here: Ints, taken: Codes) -> None:
        self.order = _preference_order(candidates, was_here, taken)
        cell_of, groups_of_cells = _cells([groups.codes[self.order] for groups in candidates.groups])
        by_cell = np.argsort(_narrow(cell_of), kind="stable")
        sizes = np.bincount(cell_of, minlength=groups_of_cells.shape[1])
        ends = np.cumsum(sizes)
        self.members = by_cell.tolist()
        self.heads = (ends - sizes).tolist()
        self.ends = ends.tolist()
        self.total = -by_cell[ends - sizes].astype(np.int64)
        starts = candidates.starting_counts()
        self.tracks = [
            _Track(candidates.strategy, constraint, start + groups.count(taken), codes, self.total)
            for constraint, groups, start, codes in zip(
                candidates.constraints, candidates.groups, starts, groups_of_cells, strict=True
            )
        ]

    def run(self, wanted: int) -> Picks:
        """Pick until there are enough or nobody is left."""
        total, members, heads, ends = self.total, self.members, self.heads, self.ends
        adders = [(track.add, track.group_of_cell) for track in self.tracks]
        ranks: list[int] = []
        values: list[int] = []
        while len(ranks) < wanted and len(total):
            cell = int(total.argmax())
            value = int(total[cell])
            if value <= _NOBODY:
                break
            head = heads[cell]
            rank = members[head]
            ranks.append(rank)
            values.append(value)
            head += 1
            heads[cell] = head
            total[cell] = value + rank - members[head] if head < ends[cell] else _EMPTY
            for add, group_of_cell in adders:
                add(group_of_cell[cell])
        return self._picks(ranks, values, wanted)

    def _picks(self, ranks: list[int], values: list[int], wanted: int) -> Picks:
        taken = np.array(ranks, dtype=np.int64)
        scores = (np.array(values, dtype=np.int64) + taken) // _SCORE_UNIT
        return Picks(self.order[taken].astype(np.int32), scores, ran_dry=len(ranks) < wanted)


class _Track:
    """One constraint during a run: counts and levels, and each group's share of its cells' totals."""

    def __init__(
        self,
        strategy: SpreadStrategy,
        constraint: TopologySpreadConstraint,
        counts: Ints,
        group_of_cell: Codes,
        total: Ints,
    ) -> None:
        self.strategy, self.constraint, self.total = strategy, constraint, total
        self.counts, self.count_of = counts, counts.tolist()
        self.codes, self.group_of_cell = group_of_cell, group_of_cell.tolist()
        self.cells_of = _cells_by_group(group_of_cell, len(counts))
        levels = levels_of(counts)
        self.smallest, self.largest = levels.smallest, levels.largest
        self.standing = (levels.skew, levels.has_lone_smallest)
        self.occupancy = np.bincount(counts, minlength=levels.largest + 1).tolist()
        self.tables: dict[tuple[int, bool], tuple[Ints, list[int]]] = {}
        self.table, self.table_list = self._table()
        self.share = np.append(self.table[counts - levels.smallest], self._keyless_share())
        self.change = np.zeros_like(self.share)
        total += self.share[group_of_cell]

    def add(self, group: int) -> None:
        """Count one more cluster in a group, and bring the totals of the cells up to date."""
        if group < 0:
            return
        count = self.count_of[group]
        self.count_of[group] = after = count + 1
        self.counts[group] = after
        occupancy = self.occupancy
        occupancy[count] -= 1
        if count == self.largest:
            self.largest = after
            occupancy.append(0)
        occupancy[after] += 1
        has_risen = count == self.smallest and not occupancy[count]
        if has_risen:
            self.smallest = after
        standing = (self.largest - self.smallest, occupancy[self.smallest] == 1)
        if has_risen or standing != self.standing:
            self.standing = standing
            self._rebuild()
        else:
            self._set_share(group, self.table_list[after - self.smallest])

    def _rebuild(self) -> None:
        self.table, self.table_list = self._table()
        change = self.change
        np.subtract(self.table[self.counts - self.smallest], self.share[:-1], out=change[:-1])
        changed = change.nonzero()[0]
        if len(changed) <= _FEW:
            for group in changed.tolist():
                self._set_share(group, int(self.share[group] + change[group]))
        else:
            self.share += change
            self.total += change[self.codes]

    def _set_share(self, group: int, share: int) -> None:
        difference = share - int(self.share[group])
        if difference:
            self.share[group] = share
            self.total[self.cells_of[group]] += difference

    def _table(self) -> tuple[Ints, list[int]]:
        """Give the share for each count from the smallest to the largest, as the strategy judges it now."""
        known = self.tables.get(self.standing)
        if known is None:
            skew, lone = self.standing
            levels = Levels(self.smallest, self.largest, has_lone_smallest=lone, groups=len(self.counts))
            prospect = Prospect(np.arange(self.smallest, self.smallest + skew + 1), levels)
            shares = self.strategy.score(self.constraint, prospect) * _SCORE_UNIT
            if is_hard(self.constraint):
                shares = np.where(self.strategy.violates(self.constraint, prospect), _FORBIDDEN, shares)
            known = self.tables[self.standing] = (shares, shares.tolist())
        return known

    def _keyless_share(self) -> int:
        score = self.strategy.keyless_score(self.constraint)
        return _FORBIDDEN if score is None else score * _SCORE_UNIT


def _preference_order(candidates: Candidates, was_here: Ints, taken: Codes) -> Ints:
    """Give the positions of the clusters that pass the filters, best first, the spread left aside."""
    passes = candidates.passes.copy()
    passes[taken] = False
    positions = np.nonzero(passes)[0]
    columns = candidates.strategy.rank(
        spread=np.zeros(len(positions), dtype=np.int64),
        affinity=candidates.affinity[positions],
        was_here=was_here[positions],
    )
    return positions[descending(columns)]


def _cells(columns: list[Codes]) -> tuple[Ints, NDArray[np.int32]]:
    """Number the distinct combinations of groups; give each cluster's cell, and each cell's groups."""
    cell_of = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        cell_of = cell_of * (int(column.max(initial=0)) - low + 1) + (column - low)
        cell_of = _renumber(cell_of)
    count = int(cell_of.max(initial=-1)) + 1
    groups = np.zeros((len(columns), count), dtype=np.int32)
    for index, column in enumerate(columns):
        groups[index, cell_of] = column
    return cell_of, groups


def _renumber(codes: Ints) -> Ints:
    """Number the values that occur from 0 without gaps, keeping their order."""
    room = int(codes.max(initial=0)) + 1
    if room > 4 * len(codes) + 1024:
        return np.unique(codes, return_inverse=True)[1]
    occurs = np.zeros(room, dtype=np.bool_)
    occurs[codes] = True
    return (np.cumsum(occurs) - 1)[codes]


def _narrow(codes: Ints) -> NDArray[np.integer[Any]]:
    """Use 16 bits where they suffice, which makes a stable sort a radix sort."""
    return codes.astype(np.uint16) if codes.max(initial=0) < 1 << 16 else codes


def _cells_by_group(group_of_cell: Codes, groups: int) -> list[Ints]:
    by_group = np.argsort(group_of_cell, kind="stable")
    bounds = np.searchsorted(group_of_cell[by_group], np.arange(groups + 1)).tolist()
    return [by_group[start:end] for start, end in pairwise(bounds)]
