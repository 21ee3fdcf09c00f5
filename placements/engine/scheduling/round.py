"""One round evaluated for all clusters: scores, exclusions by hard constraints, and the ranking.

The picker updates the same numbers from pick to pick; this module computes them from the beginning for any
round, for replays and as the reference of the picker's tests.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from clusters.columns import Bools, Codes, Ints
from fleetui.apimachinery.effort import check_time
from placements.engine.scheduling.candidates import Candidates
from placements.engine.scheduling.spread.base import (
    ConstraintVerdict,
    Groups,
    RoundState,
    Scores,
    SkewLevels,
    SkewProjection,
    SpreadStrategy,
    imbalance,
    levels_of,
    reported_score,
)
from placements.manifests.policy import TopologySpreadConstraint

NAME_COLUMN = "name"
REPORTED_COLUMNS = frozenset({"topology", "affinity", "was-here"})
SpreadScore: TypeAlias = float | tuple[float, ...]


@dataclass(frozen=True)
class ConstraintScore:
    """What one constraint computes for every cluster in a round."""

    constraint: TopologySpreadConstraint
    groups: Groups
    counts: Ints
    score: Scores
    violates: Bools
    is_forbidden: Bools
    projected: SkewProjection

    @cached_property
    def levels(self) -> SkewLevels:
        """Return the smallest and largest count before the pick."""
        return levels_of(self.counts)

    @property
    def imbalance(self) -> int:
        """Return the imbalance before the pick, as the strategy compares domains."""
        return imbalance(self.counts, self.projected)

    @property
    def lacks_domains(self) -> int | None:
        """Return minDomains where there are fewer domains, and the smallest counts as 0."""
        if self.constraint.min_domains is None:
            return None
        smallest = int(self.projected.smallest.max(initial=0))
        return self.constraint.min_domains if smallest < self.levels.smallest else None


class RoundEvaluation:
    """A round evaluated by a strategy: what is forbidden, which entries contend, their scores."""

    def __init__(self, strategy: SpreadStrategy, state: RoundState) -> None:
        self.strategy = strategy
        self.state = state
        self.verdicts: list[ConstraintVerdict] = strategy.verdicts(state)
        self.is_forbidden: Bools = np.zeros(len(state.left), dtype=np.bool_)
        for verdict in self.verdicts:
            self.is_forbidden |= verdict.forbids
        # Left and not forbidden, in one step.
        self.contends: Bools = state.left > self.is_forbidden

    @cached_property
    def scores(self) -> list[Scores]:
        return self.strategy.scores(self.state, self.contends)

    @cached_property
    def spread(self) -> tuple[Scores, ...]:
        """Return every entry's topology spread score, in one column or several."""
        scores = self.scores if self.strategy.combines_scores else []
        return self.strategy.combine(self.state, scores, self.contends)


@dataclass(frozen=True)
class CandidateScore:
    """One entry of an evaluated race."""

    evaluation: RoundEvaluation
    constraint_scores: tuple[ConstraintScore, ...]
    index: int

    @property
    def is_forbidden(self) -> bool:
        return bool(self.evaluation.is_forbidden[self.index])

    @property
    def spread_score(self) -> SpreadScore:
        values = [column[self.index].item() for column in self.evaluation.spread]
        return reported_score(values, self.evaluation.strategy)


def _constraint_scores(evaluation: RoundEvaluation) -> tuple[ConstraintScore, ...]:
    parts = zip(
        evaluation.state.parts,
        evaluation.scores,
        evaluation.verdicts,
        evaluation.strategy.projections(evaluation.state),
        strict=True,
    )
    return tuple(
        ConstraintScore(*part, score, verdict.violates, verdict.forbids, projected)
        for part, score, verdict, projected in parts
    )


@dataclass(frozen=True)
class Round:
    """One round, numbered from 1, given the picks before it."""

    candidates: Candidates
    number: int
    earlier_picks: Codes

    @cached_property
    def counts(self) -> tuple[Ints, ...]:
        """Return the counts per domain before this round's pick, an entry per constraint."""
        starts = self.candidates.starting_counts()
        pairs = zip(starts, self.candidates.groups, strict=True)
        return tuple(
            start + groups.count(self.earlier_picks) for start, groups in pairs
        )

    @cached_property
    def evaluation(self) -> RoundEvaluation:
        check_time()
        candidates = self.candidates
        state = RoundState(
            candidates.constraints, candidates.groups, self.counts, self.is_left
        )
        return RoundEvaluation(candidates.strategy, state)

    @cached_property
    def constraint_scores(self) -> tuple[ConstraintScore, ...]:
        return _constraint_scores(self.evaluation)

    def among_all(self, position: int) -> "CandidateScore":
        return CandidateScore(self.evaluation, self.constraint_scores, position)

    def alone(self, position: int) -> "CandidateScore":
        """Return the evaluation of one cluster where the strategy allows it, much faster than all of them."""
        if not self.candidates.is_judged_by_domain:
            return self.among_all(position)
        groups = tuple(
            replace(group, codes=group.codes[[position]])
            for group in self.candidates.groups
        )
        left = np.array(
            [self.candidates.passes[position] and position not in self.earlier_picks]
        )
        state = RoundState(self.candidates.constraints, groups, self.counts, left)
        evaluation = RoundEvaluation(self.candidates.strategy, state)
        return CandidateScore(evaluation, _constraint_scores(evaluation), 0)

    @property
    def is_forbidden(self) -> Bools:
        return self.evaluation.is_forbidden

    @property
    def contends(self) -> Bools:
        return self.evaluation.contends

    @property
    def spread(self) -> tuple[Scores, ...]:
        return self.evaluation.spread

    def spread_score(self, position: int) -> SpreadScore:
        return CandidateScore(self.evaluation, (), position).spread_score

    @cached_property
    def is_left(self) -> Bools:
        """Return which clusters pass the filters and were not picked before."""
        left = self.candidates.passes.copy()
        left[self.earlier_picks] = False
        return left

    @cached_property
    def rank_columns(self) -> tuple[Scores, ...]:
        return self.candidates.strategy.rank(
            spread=self.spread,
            preference=self.candidates.preference,
            was_here=self.candidates.was_here_in(self.number),
        )

    @cached_property
    def ranked(self) -> Ints:
        positions = np.nonzero(self.contends)[0]
        return self.candidates.in_order(
            positions, [column[positions] for column in self.rank_columns]
        )

    def best(self, *, besides: int | None = None) -> int | None:
        """Return the position of the best candidate, or of the best besides one; None if none is left."""
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
        """Return the column of the rank tuple that puts one candidate before another."""
        for name, column in self.named_columns():
            if column[ahead] != column[behind]:
                return name
        return NAME_COLUMN

    def combined(self, position: int) -> dict[str, float]:
        """Return a cluster's values in the rank columns that are not reported as scores anyway."""
        values = {
            name: column[position].item() for name, column in self.named_columns()
        }
        return {
            name: value
            for name, value in values.items()
            if name not in REPORTED_COLUMNS
        }

    def named_columns(self) -> Iterator[tuple[str, Scores]]:
        names = self.candidates.strategy.rank_names
        names = (names[0],) * (len(self.rank_columns) - len(names) + 1) + names[1:]
        return zip(names, self.rank_columns, strict=True)
