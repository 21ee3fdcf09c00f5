"""The greedy loop for strategies whose scores depend on who else contends: every round judges all cells.

It is slower than the loop of `picker.py`, which touches only what a pick changes, and asks nothing of a
strategy but the eight questions.
"""

from dataclasses import replace

import numpy as np

from placements.scheduling.candidates import Candidates, preference_order
from placements.scheduling.cells import cells_of, narrow
from placements.scheduling.columns import Codes, Ints
from placements.scheduling.cycle import NOBODY
from placements.scheduling.picks import Picks
from placements.scheduling.rounds import Evaluation
from placements.scheduling.spread.base import Groups, Race


def pick_by_round(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters, one a round."""
    cells = _Cells(candidates)
    positions: list[int] = []
    scores: list[list[float]] = []
    while len(positions) < wanted:
        evaluation = Evaluation(candidates.strategy, cells.race())
        cell = cells.best(evaluation)
        if cell is None:
            break
        scores.append([column[cell].item() for column in evaluation.spread])
        positions.append(cells.take(cell))
    spread = tuple(np.array(column) for column in zip(*scores, strict=True))
    return Picks(np.array(positions, dtype=np.int32), spread, ran_dry=len(positions) < wanted)


class _Cells:
    """The cells of a run: who leads each of them, and the counts of the groups they are in."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        order = preference_order(candidates, candidates.was_here, NOBODY)
        cell_of, self.codes = cells_of([groups.codes[order] for groups in candidates.groups])
        by_cell = np.argsort(narrow(cell_of), kind="stable")
        sizes = np.bincount(cell_of, minlength=self.codes.shape[1])
        self.members = order[by_cell]
        self.ends = np.cumsum(sizes)
        self.heads = self.ends - sizes
        self.leaders: Ints = self.members[self.heads] if len(order) else order
        self.left = np.ones(len(self.leaders), dtype=np.bool_)
        self.counts = candidates.starting_counts()
        self.groups = tuple(
            _at(groups, codes, self.leaders)
            for groups, codes in zip(candidates.groups, self.codes, strict=True)
        )

    def race(self) -> Race:
        """Give the round to come."""
        return Race(self.candidates.constraints, self.groups, tuple(self.counts), self.left)

    def best(self, evaluation: Evaluation) -> int | None:
        """Give the cell whose leader ranks first, None when nobody contends."""
        cells = np.nonzero(evaluation.contends)[0]
        if not len(cells):
            return None
        candidates, leaders = self.candidates, self.leaders[cells]
        columns = candidates.strategy.rank(
            spread=tuple(column[cells] for column in evaluation.spread),
            preference=candidates.preference[leaders],
            was_here=candidates.was_here[leaders],
        )
        best = np.arange(len(cells))
        for column in columns:
            values = column[best]
            best = best[values == values.max()]
        by_name = leaders[best].argmin if candidates.strategy.smaller_name_wins else leaders[best].argmax
        return int(cells[best[by_name()]])

    def take(self, cell: int) -> int:
        """Take the leader of a cell; give its position."""
        position = int(self.leaders[cell])
        self.heads[cell] += 1
        if self.heads[cell] < self.ends[cell]:
            self.leaders[cell] = self.members[self.heads[cell]]
        else:
            self.left[cell] = False
        for counts, codes in zip(self.counts, self.codes, strict=True):
            if codes[cell] >= 0:
                counts[codes[cell]] += 1
        return position


def _at(groups: Groups, codes: Codes, leaders: Ints) -> Groups:
    """Give the groups with cells for entries; a cell is in the family of any of its clusters."""
    family_of = None if groups.family_of is None else groups.family_of[leaders]
    return replace(groups, codes=codes, family_of=family_of)
