"""One round evaluated for every cluster at once: scores, what is forbidden, and the ranking.

The picker keeps the same numbers up to date from pick to pick; this module computes them afresh for
any round, which is what a replay shows and what the picker is tested against.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from placements.scheduling.candidates import Candidates
from placements.scheduling.columns import Bools, Codes, Ints
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import (
    Groups,
    GroupStrategy,
    Levels,
    Outlook,
    Race,
    Scores,
    SpreadStrategy,
    Verdict,
    levels_of,
    unevenness,
)

NAME_COLUMN = "name"
TOLD_COLUMNS = frozenset({"topology", "affinity", "was-here"})
SpreadScore: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class Bid:
    """What one constraint says of every cluster in a round."""

    constraint: TopologySpreadConstraint
    groups: Groups
    counts: Ints
    score: Scores
    violates: Bools
    is_forbidden: Bools
    outlook: Outlook

    @cached_property
    def levels(self) -> Levels:
        """Give the smallest and largest count before the pick."""
        return levels_of(self.counts)

    @property
    def unevenness(self) -> int:
        """Give how uneven the groups are before the pick, as the strategy compares them."""
        return unevenness(self.counts, self.outlook)

    @property
    def lacks_domains(self) -> int | None:
        """Give minDomains where there are fewer groups, and the smallest is therefore taken for 0."""
        smallest = int(self.outlook.smallest.max(initial=0))
        return self.constraint.min_domains if smallest < self.levels.smallest else None


@dataclass(frozen=True)
class Evaluation:
    """A race judged by a strategy: what is forbidden, who contends, how well each does for the spread."""

    strategy: SpreadStrategy
    race: Race

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Give every constraint's verdict on every entry."""
        return self.strategy.verdicts(self.race)

    @cached_property
    def is_forbidden(self) -> Bools:
        """Mark the entries that a hard constraint rules out in this round."""
        forbidden = np.zeros(len(self.race.left), dtype=np.bool_)
        for verdict in self.verdicts:
            forbidden |= verdict.forbids
        return forbidden

    @cached_property
    def contends(self) -> Bools:
        """Mark the entries that can be picked in this round."""
        return self.race.left & ~self.is_forbidden

    @cached_property
    def scores(self) -> list[Scores]:
        """Give every constraint's score of every entry."""
        return self.strategy.scores(self.race, self.contends)

    @cached_property
    def spread(self) -> tuple[Scores, ...]:
        """Give every entry's topology spread score, in one column or several."""
        return self.strategy.combine(self.race, self.scores, self.contends)


@dataclass(frozen=True)
class Entry:
    """One entry of an evaluated race."""

    evaluation: Evaluation
    bids: tuple[Bid, ...]
    index: int

    @property
    def is_forbidden(self) -> bool:
        """Tell whether a hard constraint rules the entry out."""
        return bool(self.evaluation.is_forbidden[self.index])

    @property
    def spread_score(self) -> SpreadScore:
        """Give the topology spread score as it is told."""
        values = [column[self.index].item() for column in self.evaluation.spread]
        return told(values, self.evaluation.strategy)


def _bids(evaluation: Evaluation) -> tuple[Bid, ...]:
    race, outlook = evaluation.race, evaluation.strategy.outlook
    parts = zip(race.constraints, race.groups, race.counts, strict=True)
    judged = zip(parts, evaluation.scores, evaluation.verdicts, strict=True)
    return tuple(
        Bid(*part, score, verdict.violates, verdict.forbids, outlook(*part))
        for part, score, verdict in judged
    )


def told(values: list[float], strategy: SpreadStrategy) -> SpreadScore:
    """Give a spread score as it is told: a number, or a list with a number per level."""
    return tuple(values) if strategy.has_score_list else values[0]


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
    def evaluation(self) -> Evaluation:
        """Judge every cluster of the fleet."""
        candidates = self.candidates
        race = Race(candidates.constraints, candidates.groups, self.counts, self.is_left)
        return Evaluation(candidates.strategy, race)

    @cached_property
    def bids(self) -> tuple[Bid, ...]:
        """Give every constraint's scores and verdicts for every cluster."""
        return _bids(self.evaluation)

    def among_all(self, position: int) -> "Entry":
        """Give one cluster among all of them."""
        return Entry(self.evaluation, self.bids, position)

    def alone(self, position: int) -> "Entry":
        """Judge one cluster by itself where the strategy allows it, which is much faster than all of them."""
        if not isinstance(self.candidates.strategy, GroupStrategy):
            return self.among_all(position)
        groups = tuple(replace(one, codes=one.codes[[position]]) for one in self.candidates.groups)
        left = np.array([self.candidates.passes[position] and position not in self.taken])
        race = Race(self.candidates.constraints, groups, self.counts, left)
        evaluation = Evaluation(self.candidates.strategy, race)
        return Entry(evaluation, _bids(evaluation), 0)

    @property
    def is_forbidden(self) -> Bools:
        """Mark the clusters that a hard constraint rules out in this round."""
        return self.evaluation.is_forbidden

    @property
    def contends(self) -> Bools:
        """Mark the clusters that can be picked in this round."""
        return self.evaluation.contends

    @property
    def spread(self) -> tuple[Scores, ...]:
        """Give every cluster's topology spread score, in one column or several."""
        return self.evaluation.spread

    def spread_score(self, position: int) -> SpreadScore:
        """Give the topology spread score of one cluster as it is told."""
        return Entry(self.evaluation, (), position).spread_score

    @cached_property
    def is_left(self) -> Bools:
        """Mark the clusters that pass the filters and were not picked before."""
        left = self.candidates.passes.copy()
        left[self.taken] = False
        return left

    @cached_property
    def rank_columns(self) -> tuple[Scores, ...]:
        """Give the columns that rank the candidates, without the name."""
        return self.candidates.strategy.rank(
            spread=self.spread,
            preference=self.candidates.preference,
            was_here=self.candidates.was_here_in(self.number),
        )

    @cached_property
    def ranked(self) -> Ints:
        """Give the positions of the candidates, best first."""
        positions = np.nonzero(self.contends)[0]
        return self.candidates.in_order(positions, [column[positions] for column in self.rank_columns])

    def best(self, *, besides: int | None = None) -> int | None:
        """Give the position of the best candidate, or of the best besides one; None if nobody is left."""
        contends = self.contends.copy()
        if besides is not None:
            contends[besides] = False
        positions = np.nonzero(contends)[0]
        for column in self.rank_columns:
            values = column[positions]
            positions = positions[values == values.max()] if len(values) else positions
        if not len(positions):
            return None
        return int(positions[0 if self.candidates.strategy.smaller_name_wins else -1])

    def decided_by(self, ahead: int, behind: int) -> str:
        """Name the column of the rank tuple that puts one candidate before another."""
        for name, column in self._named_columns():
            if column[ahead] != column[behind]:
                return name
        return NAME_COLUMN

    def combined(self, position: int) -> dict[str, float]:
        """Give a cluster's values in the rank columns that are none of the scores that are told anyway."""
        found = {name: column[position].item() for name, column in self._named_columns()}
        return {name: value for name, value in found.items() if name not in TOLD_COLUMNS}

    def _named_columns(self) -> Iterator[tuple[str, Scores]]:
        names = self.candidates.strategy.rank_names
        names = (names[0],) * (len(self.rank_columns) - len(names) + 1) + names[1:]
        return zip(names, self.rank_columns, strict=True)
