"""The greedy loop for strategies that sum the scores of the constraints and rank by the sum first.

A cell holds the clusters that are in the same domain of every constraint. Only its best ranked cluster can
win, so a round compares one number per cell: the spread score above the rank of that cluster. A pick
changes it only in cells whose domain changed its score.
"""

from dataclasses import replace

import numpy as np

from clusters.columns import Codes, Ints
from fleetui.apimachinery.effort import check_picks, check_time
from placements.engine.scheduling.candidates import Candidates, Picks, preference_order
from placements.engine.scheduling.contended_picker import (
    PICKS_BETWEEN_CHECKS,
    pick_by_round,
)
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.round import Round
from placements.engine.scheduling.spread.base import (
    GroupStrategy,
    RoundState,
    SkewAfterPick,
    SkewLevels,
    cells_by_group,
    cells_of,
    is_hard,
    levels_of,
    narrow,
)
from placements.manifests.policy import TopologySpreadConstraint

_SCORE_UNIT = 1 << 32  # a spread score of 1; ranks, which are below it, break ties
_FORBIDDEN = -(
    1 << 55
)  # once per hard constraint that a pick would break; 60 of them fit
_EMPTY = -(1 << 61)  # a cell without a cluster left
_TOO_LOW = -(1 << 54)  # no allowed pick is as low as this
_FEW = 2  # up to this number, changed domains are updated one by one


def pick(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters: all at once without spread constraints, else one a round."""
    if not candidates.constraints:
        best = Round(candidates, 1, NO_CLUSTERS).ranked[:wanted].astype(np.int32)
        unspread = candidates.strategy.combine(
            RoundState((), (), (), candidates.passes), [], candidates.passes
        )
        return Picks(
            best, tuple(column[best] for column in unspread), ran_dry=len(best) < wanted
        )
    if not isinstance(candidates.strategy, GroupStrategy):
        return pick_by_round(candidates, wanted)
    if candidates.strategy.was_here_in_first_round_only and candidates.was_here.any():
        first = Round(candidates, 1, NO_CLUSTERS)
        if not len(first.ranked):
            return Picks(NO_CLUSTERS, (np.zeros(0, dtype=np.int64),), ran_dry=True)
        winner = first.ranked[:1].astype(np.int32)
        rest = _Greedy(
            candidates, candidates.strategy, candidates.was_here_in(2), winner
        ).run(wanted - 1)
        scores = np.concatenate([first.spread[0][winner], rest.spread[0]])
        return replace(
            rest, positions=np.concatenate([winner, rest.positions]), spread=(scores,)
        )
    return _Greedy(
        candidates, candidates.strategy, candidates.was_here, NO_CLUSTERS
    ).run(wanted)


def possible_picks(candidates: Candidates, picks: Picks, more: int) -> int:
    """Return how many of this number of additional clusters can be picked after the picks of a cycle."""
    if not candidates.constraints:
        return min(
            more, int(np.count_nonzero(candidates.passes)) - len(picks.positions)
        )
    if more == 1 and picks.has_next is not None:
        return int(picks.has_next)
    return len(pick(candidates, len(picks.positions) + more).positions) - len(
        picks.positions
    )


class _Greedy:
    """The state of a run: a total per cell, kept up to date by one track per constraint."""

    def __init__(
        self,
        candidates: Candidates,
        strategy: GroupStrategy,
        was_here: Ints,
        picks: Codes,
    ) -> None:
        self.order = preference_order(candidates, was_here, picks)
        cell_of, groups_of_cells = cells_of(
            [groups.codes[self.order] for groups in candidates.groups]
        )
        by_cell = np.argsort(narrow(cell_of), kind="stable")
        sizes = np.bincount(cell_of, minlength=groups_of_cells.shape[1])
        ends = np.cumsum(sizes)
        self.members = by_cell.tolist()
        self.heads = (ends - sizes).tolist()
        self.ends = ends.tolist()
        self.total = -by_cell[ends - sizes].astype(np.int64)
        starts = candidates.starting_counts()
        self.tracks = [
            _Track(strategy, constraint, start + groups.count(picks), codes, self.total)
            for constraint, groups, start, codes in zip(
                candidates.constraints,
                candidates.groups,
                starts,
                groups_of_cells,
                strict=True,
            )
        ]

    def run(self, wanted: int) -> Picks:
        """Pick until there are enough or no candidate is left."""
        total, members, heads, ends = self.total, self.members, self.heads, self.ends
        adders = [(track.add, track.group_of_cell) for track in self.tracks]
        picks = min(wanted, len(self.order))
        check_picks(cells=len(total), picks=picks, constraints=len(self.tracks))
        ranks: list[int] = []
        values: list[int] = []
        while len(ranks) < wanted and len(total):
            if not len(ranks) % PICKS_BETWEEN_CHECKS:
                check_time()
            cell = int(total.argmax())
            value = int(total[cell])
            if value <= _TOO_LOW:
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
        rank_column = np.array(ranks, dtype=np.int64)
        scores = (np.array(values, dtype=np.int64) + rank_column) // _SCORE_UNIT
        has_next = bool(len(total) and total.max() > _TOO_LOW)
        return Picks(
            self.order[rank_column].astype(np.int32),
            (scores,),
            len(ranks) < wanted,
            has_next,
        )


class _Track:
    """One constraint during a run: counts and levels, and each domain's share of its cells' totals."""

    def __init__(
        self,
        strategy: GroupStrategy,
        constraint: TopologySpreadConstraint,
        counts: Ints,
        group_of_cell: Codes,
        total: Ints,
    ) -> None:
        self.strategy, self.constraint, self.total = strategy, constraint, total
        self.counts, self.count_of = counts, counts.tolist()
        self.codes, self.group_of_cell = group_of_cell, group_of_cell.tolist()
        self.cells_of = cells_by_group(group_of_cell, len(counts))
        levels = levels_of(counts)
        self.smallest, self.largest = levels.smallest, levels.largest
        self.skew_state = (levels.skew, levels.has_lone_smallest)
        self.occupancy = np.bincount(counts, minlength=levels.largest + 1).tolist()
        self.tables: dict[tuple[int, bool], tuple[Ints, list[int]]] = {}
        self.table, self.table_list = self._table()
        score = self.strategy.keyless_score(self.constraint)
        self.share = np.append(
            self.table[counts - levels.smallest],
            (_FORBIDDEN if score is None else score * _SCORE_UNIT),
        )
        self.change = np.zeros_like(self.share)
        total += self.share[group_of_cell]

    def add(self, group: int) -> None:
        """Count one more cluster in a domain, and bring the totals of the cells up to date."""
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
        skew_state = (self.largest - self.smallest, occupancy[self.smallest] == 1)
        if has_risen or skew_state != self.skew_state:
            self.skew_state = skew_state
            self._rebuild()
        else:
            self._set_share(group, self.table_list[after - self.smallest])

    def _rebuild(self) -> None:
        self.table, self.table_list = self._table()
        change = self.change
        np.subtract(
            self.table[self.counts - self.smallest], self.share[:-1], out=change[:-1]
        )
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
        """Return the share for each count from the smallest to the largest, under the current counts."""
        table = self.tables.get(self.skew_state)
        if table is None:
            skew, lone = self.skew_state
            levels = SkewLevels(
                self.smallest,
                self.largest,
                has_lone_smallest=lone,
                groups=len(self.counts),
            )
            after_pick = SkewAfterPick(
                np.arange(self.smallest, self.smallest + skew + 1), levels
            )
            shares = self.strategy.score(self.constraint, after_pick) * _SCORE_UNIT
            if is_hard(self.constraint):
                shares = np.where(
                    self.strategy.violates(self.constraint, after_pick),
                    _FORBIDDEN,
                    shares,
                )
            table = self.tables[self.skew_state] = (shares, shares.tolist())
        return table
