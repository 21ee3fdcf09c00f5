"""One round evaluated for every cluster at once: scores, what is forbidden, and the ranking.

The picker keeps the same numbers up to date from pick to pick; this module computes them afresh for
any round, which is what a replay shows and what the picker is tested against.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements.scheduling.candidates import Candidates, is_hard
from placements.scheduling.columns import Bools, Codes, Ints, descending
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import Groups, Levels, Prospect, levels_of

RANK_COLUMNS = ("topology", "affinity", "was-here", "name")


@dataclass(frozen=True)
class Bid:
    """What one constraint says of every cluster in a round."""

    constraint: TopologySpreadConstraint
    groups: Groups
    counts: Ints
    score: Ints
    violates: Bools
    is_forbidden: Bools

    @cached_property
    def levels(self) -> Levels:
        """Give the smallest and largest count before the pick."""
        return levels_of(self.counts)


@dataclass(frozen=True)
class Round:
    """One round, numbered from 1, given who was picked before it."""

    candidates: Candidates
    number: int
    taken: Codes

    @cached_property
    def counts(self) -> tuple[Ints, ...]:
        """Give the counts per group before this round's pick, an entry per constraint."""
        starts = self.candidates.starting_counts()
        pairs = zip(starts, self.candidates.groups, strict=True)
        return tuple(start + groups.count(self.taken) for start, groups in pairs)

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """Give every constraint's scores and verdicts for every cluster."""
        parts = zip(self.candidates.constraints, self.candidates.groups, self.counts, strict=True)
        return tuple(self._bid(constraint, groups, counts) for constraint, groups, counts in parts)

    def _bid(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> Bid:
        strategy = self.candidates.strategy
        prospect = Prospect(counts, levels_of(counts))
        keyless = strategy.keyless_score(constraint)
        violates = np.append(strategy.violates(constraint, prospect), False)[groups.codes]
        score = np.append(strategy.score(constraint, prospect), keyless or 0)[groups.codes]
        forbidden = violates & is_hard(constraint)
        if keyless is None:
            forbidden = forbidden | (groups.codes < 0)
        return Bid(constraint, groups, counts, score, violates, forbidden)

    @cached_property
    def is_forbidden(self) -> Bools:
        """Mark the clusters that a hard constraint rules out in this round."""
        forbidden = np.zeros(len(self.candidates.failed), dtype=np.bool_)
        for bid in self.bids:
            forbidden |= bid.is_forbidden
        return forbidden

    @cached_property
    def contends(self) -> Bools:
        """Mark the clusters that can be picked in this round."""
        return self.is_left & ~self.is_forbidden

    @cached_property
    def is_left(self) -> Bools:
        """Mark the clusters that pass the filters and were not picked before."""
        left = self.candidates.passes.copy()
        left[self.taken] = False
        return left

    @cached_property
    def spread(self) -> Ints:
        """Give every cluster's topology spread score."""
        if not self.bids:
            return np.zeros(len(self.candidates.failed), dtype=np.int64)
        return self.candidates.strategy.combine([bid.score for bid in self.bids])

    @cached_property
    def rank_columns(self) -> tuple[Ints, ...]:
        """Give the columns that rank the candidates, without the name."""
        return self.candidates.strategy.rank(
            spread=self.spread,
            affinity=self.candidates.affinity,
            was_here=self.candidates.was_here_in(self.number),
        )

    @cached_property
    def ranked(self) -> Ints:
        """Give the positions of the candidates, best first."""
        positions = np.nonzero(self.contends)[0]
        return positions[descending([column[positions] for column in self.rank_columns])]

    def best(self, *, besides: int | None = None) -> int | None:
        """Give the position of the best candidate, or of the best besides one; None if nobody is left."""
        contends = self.contends.copy()
        if besides is not None:
            contends[besides] = False
        positions = np.nonzero(contends)[0]
        for column in self.rank_columns:
            values = column[positions]
            positions = positions[values == values.max(initial=np.iinfo(np.int64).min)]
        return int(positions[-1]) if len(positions) else None

    def decided_by(self, ahead: int, behind: int) -> str:
        """Name the column of the rank tuple that puts one candidate before another."""
        for name, column in zip(RANK_COLUMNS, self.rank_columns, strict=False):
            if column[ahead] != column[behind]:
                return name
        return RANK_COLUMNS[-1]
