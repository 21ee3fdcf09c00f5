"""The greedy loop for strategies whose scores depend on who else contends.

Who is best is asked of the strategy's own standings where it keeps some, and else of its eight questions, for
all cells anew in every round. The loop of `picker.py` is for strategies that add scores of groups up.
"""

from dataclasses import replace

import numpy as np

from placements.scheduling.candidates import Candidates, preference_order
from placements.scheduling.cells import cells_of, narrow
from placements.scheduling.columns import ABSENT, Codes, Ints
from placements.scheduling.cycle import NOBODY
from placements.scheduling.picks import Picks
from placements.scheduling.rounds import Evaluation
from placements.scheduling.spread.base import Groups, Race
from placements.scheduling.standings.base import Field, Leader, OutOfRoomError, Standings, StandingsStrategy


def pick_by_round(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters, one a round."""
    cells = Cells(candidates)
    standings = _standings(cells)
    positions: list[int] = []
    scores: list[list[float]] = []
    while len(positions) < wanted:
        cell = standings.best()
        if cell is None:
            break
        scores.append(standings.scores(cell))
        positions.append(int(cells.positions[cell]))
        successor = cells.take(cell)
        try:
            standings.take(cell, successor)
        except OutOfRoomError:
            standings = Asked(cells)
    spread = tuple(np.array(column) for column in zip(*scores, strict=True))
    return Picks(np.array(positions, dtype=np.int32), spread, ran_dry=len(positions) < wanted)


def _standings(cells: "Cells") -> Standings:
    """Let the strategy keep the standings, or ask it in every round."""
    strategy = cells.candidates.strategy
    own = strategy.standings(cells.field()) if isinstance(strategy, StandingsStrategy) else None
    return Asked(cells) if own is None else own


class Cells:
    """The cells of a run: who leads each of them, whether one is left, and the counts of the groups."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.order = preference_order(candidates, candidates.was_here, NOBODY)
        cell_of, self.codes = cells_of([groups.codes[self.order] for groups in candidates.groups])
        self.ranks = np.argsort(narrow(cell_of), kind="stable")
        sizes = np.bincount(cell_of, minlength=self.codes.shape[1])
        ends = np.cumsum(sizes)
        self.ends, self.heads = ends.tolist(), (ends - sizes).tolist()
        self.groups_of: list[list[int]] = self.codes.T.tolist()
        self.positions: Ints = self.order[self.ranks[self.heads]]
        self.left = np.ones(len(sizes), dtype=np.bool_)
        self.counts = tuple(candidates.starting_counts())
        self.groups = tuple(
            _at(groups, codes, self.positions)
            for groups, codes in zip(candidates.groups, self.codes, strict=True)
        )

    def take(self, cell: int) -> Leader | None:
        """Take the leader of a cell; give its successor, None when the cell is empty now."""
        for counts, group in zip(self.counts, self.groups_of[cell], strict=True):
            if group != ABSENT:
                counts[group] += 1
        self.heads[cell] = head = self.heads[cell] + 1
        if head == self.ends[cell]:
            self.left[cell] = False
            return None
        rank = int(self.ranks[head])
        self.positions[cell] = position = int(self.order[rank])
        return Leader(position, rank, self.candidates.preference[position].item())

    def field(self) -> Field:
        """Give the start of the run as a strategy sees it."""
        return Field(
            self.candidates.constraints,
            self.groups,
            self.counts,
            self.positions,
            ranks=self.ranks[self.heads],
            preference=self.candidates.preference[self.positions],
            size=len(self.candidates.passes),
            widest=float(np.abs(self.candidates.preference).max(initial=0)),
        )


class Asked:
    """Standings by the eight questions, asked of every cell in every round."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.evaluation = self._evaluation()

    def _evaluation(self) -> Evaluation:
        cells = self.cells
        race = Race(cells.candidates.constraints, cells.groups, cells.counts, cells.left)
        return Evaluation(cells.candidates.strategy, race)

    def best(self) -> int | None:
        """Give the cell whose leader ranks first, None when nobody contends."""
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
        """Give the columns of a cell's spread score in the round that was judged last."""
        return [column[cell].item() for column in self.evaluation.spread]

    def take(self, _cell: int, _successor: Leader | None) -> None:
        """Do nothing: the next round looks at the cells themselves."""


def _at(groups: Groups, codes: Codes, leaders: Ints) -> Groups:
    """Give the groups with cells for entries; a cell is in the family of any of its clusters."""
    family_of = None if groups.family_of is None else groups.family_of[leaders]
    return replace(groups, codes=codes, family_of=family_of)
