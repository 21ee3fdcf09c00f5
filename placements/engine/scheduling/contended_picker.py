"""The greedy loop for strategies whose scores depend on which other clusters compete.

Every round evaluates the strategy's methods for the best cluster of each cell. Strategies that sum scores of
domains use `picker.py`.
"""

from dataclasses import replace

import numpy as np

from clusters.columns import ABSENT, Bools, Ints
from fleetui.apimachinery.effort import check_picks, check_time
from placements.engine.scheduling.candidates import Candidates, Picks, preference_order
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.round import RoundEvaluation
from placements.engine.scheduling.spread.base import (
    RoundState,
    Scores,
    cells_of,
)

PICKS_BETWEEN_CHECKS = 32
"""How often the time is looked at: a pick takes 10 microseconds to some milliseconds."""


def pick_by_round(cells: "Cells", wanted: int) -> Picks:
    """Pick up to `wanted` clusters, one a round."""
    picks = min(wanted, len(cells.order))
    check_picks(cells=len(cells.left), picks=picks, constraints=len(cells.groups))
    positions: list[int] = []
    scores: list[list[float]] = []
    while len(positions) < wanted:
        if not len(positions) % PICKS_BETWEEN_CHECKS:
            check_time()
        contends, spread_scores = cells.evaluate()
        cell = cells.best(contends, spread_scores)
        if cell is None:
            break
        scores.append([column[cell].item() for column in spread_scores])
        positions.append(int(cells.positions[cell]))
        cells.take(cell)
    spread = tuple(np.array(column) for column in zip(*scores, strict=True))
    return Picks(
        np.array(positions, dtype=np.int32), spread, ran_dry=len(positions) < wanted
    )


class Cells:
    """The cells of a run: the leader of each, whether one is left, and the counts of the domains."""

    def __init__(self, candidates: Candidates) -> None:
        self.candidates = candidates
        self.order = preference_order(candidates, candidates.was_here, NO_CLUSTERS)
        self.ranks, firsts, ends, codes_of_cells = cells_of(
            [groups.codes[self.order] for groups in candidates.groups]
        )
        self.ends: list[int] = ends.tolist()
        self.heads: list[int] = firsts.tolist()
        self.groups_of: list[list[int]] = codes_of_cells.T.tolist()
        self.positions: Ints = self.order[self.ranks[firsts]]
        self.preference = candidates.preference[self.positions]
        self.was_here = candidates.was_here[self.positions]
        self.left = np.ones(len(firsts), dtype=np.bool_)
        self.counts = tuple(candidates.starting_counts())
        # A cell is in the family of any of its clusters.
        self.groups = tuple(
            replace(
                groups,
                codes=codes,
                family_of=None
                if groups.family_of is None
                else groups.family_of[self.positions],
            )
            for groups, codes in zip(candidates.groups, codes_of_cells, strict=True)
        )

    def evaluate(self) -> tuple[Bools, tuple[Scores, ...]]:
        """Return which cells contend in this round, and the columns of their spread score."""
        constraints = self.candidates.constraints
        state = RoundState(constraints, self.groups, self.counts, self.left)
        evaluation = RoundEvaluation(self.candidates.strategy, state)
        return evaluation.contends, evaluation.spread

    def best(self, contends: Bools, spread: tuple[Scores, ...]) -> int | None:
        """Return the cell whose leader ranks first, None when no cell contends."""
        (best,) = contends.nonzero()
        if not len(best):
            return None
        strategy = self.candidates.strategy
        columns = strategy.rank(
            spread=spread, preference=self.preference, was_here=self.was_here
        )
        for column in columns:
            values = column.take(best)
            best = best[values == values[values.argmax()]]
            if len(best) == 1:
                return int(best[0])
        positions = self.positions[best]
        first = positions.argmin() if strategy.smaller_name_wins else positions.argmax()
        return int(best[first])

    def take(self, cell: int) -> None:
        """Count the leader of a cell as picked; the next one of the cell leads from now on."""
        for counts, group in zip(self.counts, self.groups_of[cell], strict=True):
            if group != ABSENT:
                counts[group] += 1
        self.heads[cell] += 1
        head = self.heads[cell]
        if head == self.ends[cell]:
            self.left[cell] = False
            return
        position = self.order[self.ranks[head]]
        self.positions[cell] = position
        self.preference[cell] = self.candidates.preference[position]
        self.was_here[cell] = self.candidates.was_here[position]
