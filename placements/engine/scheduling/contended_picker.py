"""The greedy loop for strategies whose scores depend on which other clusters compete.

The best cell is determined by the strategy's incremental ranker if it has one, otherwise by its eight
methods, evaluated for all cells in every round. Strategies that sum scores of domains use `picker.py`.
"""

from dataclasses import replace

import numpy as np

from clusters.columns import ABSENT, Ints
from fleetui.apimachinery.effort import check_picks, check_time
from placements.engine.scheduling.candidates import Candidates, Picks, preference_order
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.round import RoundEvaluation
from placements.engine.scheduling.spread.base import (
    CellBest,
    IncrementalRanker,
    IncrementalStrategy,
    OutOfRoomError,
    RankerInput,
    RoundState,
    cells_of,
    narrow,
)

PICKS_BETWEEN_CHECKS = 32
"""How often the time is looked at: a pick takes 10 microseconds to some milliseconds."""


def pick_by_round(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters, one a round."""
    cells = Cells(candidates)
    ranker = _ranker(cells)
    picks = min(wanted, len(cells.order))
    check_picks(cells=len(cells.left), picks=picks, constraints=len(candidates.constraints))
    positions: list[int] = []
    scores: list[list[float]] = []
    while len(positions) < wanted:
        if not len(positions) % PICKS_BETWEEN_CHECKS:
            check_time()
        cell = ranker.best()
        if cell is None:
            break
        scores.append(ranker.scores(cell))
        positions.append(int(cells.positions[cell]))
        successor = cells.take(cell)
        try:
            ranker.take(cell, successor)
        except OutOfRoomError:
            ranker = GenericRanker(cells)
    spread = tuple(np.array(column) for column in zip(*scores, strict=True))
    return Picks(np.array(positions, dtype=np.int32), spread, ran_dry=len(positions) < wanted)


def _ranker(cells: "Cells") -> IncrementalRanker:
    """Return the strategy's own ranker, or the generic one."""
    strategy = cells.candidates.strategy
    own = strategy.ranker(cells.field()) if isinstance(strategy, IncrementalStrategy) else None
    return GenericRanker(cells) if own is None else own


class Cells:
    """The cells of a run: the leader of each, whether one is left, and the counts of the domains."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.order = preference_order(candidates, candidates.was_here, NO_CLUSTERS)
        cell_of, self.codes = cells_of([groups.codes[self.order] for groups in candidates.groups])
        self.ranks = np.argsort(narrow(cell_of), kind="stable")
        sizes = np.bincount(cell_of, minlength=self.codes.shape[1])
        ends = np.cumsum(sizes)
        self.ends, self.heads = ends.tolist(), (ends - sizes).tolist()
        self.groups_of: list[list[int]] = self.codes.T.tolist()
        self.positions: Ints = self.order[self.ranks[self.heads]]
        self.left = np.ones(len(sizes), dtype=np.bool_)
        self.counts = tuple(candidates.starting_counts())
        # A cell is in the family of any of its clusters.
        self.groups = tuple(
            replace(
                one, codes=codes, family_of=None if one.family_of is None else one.family_of[self.positions]
            )
            for one, codes in zip(candidates.groups, self.codes, strict=True)
        )

    def take(self, cell: int) -> CellBest | None:
        """Remove the leader of a cell; return its successor, None when the cell is empty now."""
        for counts, group in zip(self.counts, self.groups_of[cell], strict=True):
            if group != ABSENT:
                counts[group] += 1
        self.heads[cell] = head = self.heads[cell] + 1
        if head == self.ends[cell]:
            self.left[cell] = False
            return None
        rank = int(self.ranks[head])
        self.positions[cell] = position = int(self.order[rank])
        return CellBest(position, rank, self.candidates.preference[position].item())

    def field(self) -> RankerInput:
        """Return the start of the run as a strategy reads it."""
        return RankerInput(
            self.candidates.constraints,
            self.groups,
            self.counts,
            self.positions,
            ranks=self.ranks[self.heads],
            preference=self.candidates.preference[self.positions],
            size=len(self.candidates.passes),
            widest=float(np.abs(self.candidates.preference).max(initial=0)),
        )


class GenericRanker:
    """A ranker for any strategy: it evaluates the eight methods for every cell in every round."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.evaluation = self._evaluation()

    def _evaluation(self) -> RoundEvaluation:
        cells = self.cells
        state = RoundState(cells.candidates.constraints, cells.groups, cells.counts, cells.left)
        return RoundEvaluation(cells.candidates.strategy, state)

    def best(self) -> int | None:
        """Return the cell whose leader ranks first, None when no cell contends."""
        self.evaluation = evaluation = self._evaluation()
        contenders = np.nonzero(evaluation.contends)[0]
        if not len(contenders):
            return None
        candidates, positions = self.cells.candidates, self.cells.positions[contenders]
        columns = candidates.strategy.rank(
            spread=tuple(column[contenders] for column in evaluation.spread),
            preference=candidates.preference[positions],
            was_here=candidates.was_here[positions],
        )
        best = np.arange(len(contenders))
        for column in columns:
            values = column[best]
            best = best[values == values.max()]
        by_name = positions[best].argmin if candidates.strategy.smaller_name_wins else positions[best].argmax
        return int(contenders[best[by_name()]])

    def scores(self, cell: int) -> list[float]:
        return [column[cell].item() for column in self.evaluation.spread]

    def take(self, _cell: int, _successor: CellBest | None) -> None:
        """Do nothing: the next round reads the cells themselves."""
