"""The replay of a decision: every round, and every cluster in it.

Rounds are rebuilt from the picks and the columns of the decision, so none is stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, takewhile

import numpy as np

from clusters.columns import ABSENT, Bools
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.round import (
    CandidateScore,
    ConstraintScore,
    Round,
    SpreadScore,
)
from placements.engine.scheduling.scores.preferred_affinity import term_scores
from placements.engine.scheduling.spread.base import Groups, imbalance, is_hard
from placements.manifests.policy import KeyType


@dataclass(frozen=True, slots=True)
class ConstraintCheck:
    """The check of one constraint for one cluster in a round; without a domain the counts are None.

    `skew_after` is compared with the limit: the skew with one more in the domain where `limits_skew`, else
    how far the domain would then be above the smallest; `skew_before` is the same before the pick.
    `is_nested`: only domains with the same values above are compared; `lacks_domains` is minDomains where
    there are fewer domains, so that the smallest counts as 0; `is_claim`: the key names a claim. `has_key`:
    the cluster is in no domain although it has the key, and does not count for another reason.
    """

    topology_key: str
    max_skew: int
    is_hard: bool
    group: str | None
    count: int | None
    smallest: int
    skew_before: int
    skew_after: int | None
    limits_skew: bool
    score: float
    violates: bool
    is_forbidden: bool
    is_nested: bool = False
    lacks_domains: int | None = None
    is_claim: bool = False
    has_key: bool = False

    @property
    def lacks_key(self) -> bool:
        return self.group is None and not self.has_key

    @property
    def facts(self) -> dict[str, object]:
        only_here: dict[str, object] = {}
        if self.is_nested:
            only_here["nested"] = True
        if self.lacks_domains:
            only_here["lacksDomains"] = self.lacks_domains
        if self.is_claim:
            only_here["topologyKeyType"] = KeyType.CLAIM
        return {
            "topologyKey": self.topology_key,
            "maxSkew": self.max_skew,
            "hard": self.is_hard,
            "group": self.group,
            "count": self.count,
            "smallest": self.smallest,
            "skewBefore": self.skew_before,
            "skewAfter" if self.limits_skew else "aboveSmallest": self.skew_after,
            "score": self.score,
            "violates": self.violates,
            **only_here,
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """One cluster in a round.

    `rank` counts from 1 and is None for a cluster that could not be picked; one that a hard constraint
    forbids has no topology spread score either. `decided_by` is the column of the rank tuple that put the
    winner before it, None for the winner itself. `combined` has the numbers that rank where they consist of
    several scores (`ocm`, `kubernetes`).
    """

    cluster: str
    rank: int | None
    topology_spread_score: SpreadScore | None
    affinity_score: float
    was_here: int
    decided_by: str | None
    constraints: tuple[ConstraintCheck, ...]
    preferred: tuple[int, ...]
    combined: dict[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """One constraint's domains in a round: counts before and after the pick, by domain.

    `skew_before` and `skew_after` are measured as the limit is: largest minus smallest where `limits_skew`,
    else how far the fullest domain is above the smallest that it is compared with. `forbids` counts the
    clusters that could otherwise have been picked in this round, `without_key` those of them without the key;
    one that has the key and is in no domain is without another key, and is counted there.
    """

    topology_key: str
    max_skew: int
    is_hard: bool
    before: dict[str, int]
    after: dict[str, int]
    skew_before: int
    skew_after: int
    forbids: int
    without_key: int = 0
    limits_skew: bool = True
    is_nested: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a round without spread constraints drew its line: the last one in, the first one out."""

    size: int
    last_in: str
    first_out: str | None
    decided_by: str | None
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """Summary of one round; `winner` is None when no cluster could be picked.

    `candidates` counts the clusters that were left to pick from, including those that a constraint forbids;
    `others_stay`: some clusters are placed already and are no candidates. `equal`: see `equal_before`.
    """

    number: int
    winner: str | None
    runner_up: str | None
    decided_by: str | None
    spreads: tuple[Spread, ...]
    cut: Cut | None
    candidates: int
    others_stay: bool = False
    equal: tuple[str, ...] = ()


class Replay:
    """Rebuilds rounds of one decision."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.names = decision.cycle.fleet.names
        self._latest: Round | None = None

    def round(self, number: int) -> Round:
        """Return one round; the latest one is kept, as its clusters are asked for one by one."""
        if self._latest is None or self._latest.number != number:
            self._latest = self.decision.round(number)
        return self._latest

    def __iter__(self) -> Iterator[RoundSummary]:
        return (
            self.step(number) for number in range(1, self.decision.number_of_rounds + 1)
        )

    def step(self, number: int) -> RoundSummary:
        """Return one round, numbered from 1. Raise IndexError."""
        one = self.round(number)
        first = one.best()
        second = None if first is None else one.best(besides=first)
        decided_by = None
        if first is not None and second is not None:
            decided_by = one.decided_by(first, second)
        return RoundSummary(
            number=number,
            winner=None if first is None else self.names[first],
            runner_up=None if second is None else self.names[second],
            decided_by=decided_by,
            spreads=tuple(
                _spread(score, one, first, self._has_key(score))
                for score in one.constraint_scores
            ),
            cut=None if one.constraint_scores else self._cut(one),
            candidates=int(np.count_nonzero(one.is_left)),
            others_stay=bool(self.decision.kept),
            equal=equal_before(self.decision.cycle, decided_by),
        )

    def candidates(self, number: int, *, most: int | None = None) -> list[Candidate]:
        """Return the clusters that passed the filters and were not picked yet: ranked, then forbidden ones.

        `most` limits their number. Raise IndexError.
        """
        one = self.decision.round(number)
        ranked = enumerate(one.ranked.tolist(), start=1)
        forbidden = (
            (None, position)
            for position in np.nonzero(one.is_left & one.is_forbidden)[0].tolist()
        )
        return [
            self._candidate(one, one.among_all(position), rank)
            for rank, position in islice(chain(ranked, forbidden), most)
        ]

    def candidate(self, number: int, cluster: str) -> Candidate:
        """Return one cluster in one round, whether or not it could be picked. Raise IndexError, KeyError."""
        return self.candidate_in(self.round(number), cluster)

    def candidate_in(self, one: Round, cluster: str) -> Candidate:
        """Return one cluster in any round under the rules of the decision. Raise KeyError."""
        position = self.decision.cycle.fleet.positions[cluster]
        places = np.nonzero(one.ranked == position)[0]
        rank = int(places[0]) + 1 if len(places) else None
        return self._candidate(one, one.among_all(position), rank)

    def verdicts(self, number: int, cluster: str) -> tuple[ConstraintCheck, ...]:
        """Return each constraint's check of one cluster in one round, in microseconds where the rules allow.

        Raise IndexError, KeyError.
        """
        position = self.decision.cycle.fleet.positions[cluster]
        entry = self.decision.round(number).alone(position)
        return tuple(
            self._verdict(score, entry.index, position)
            for score in entry.constraint_scores
        )

    def _verdict(
        self, score: ConstraintScore, index: int, position: int
    ) -> ConstraintCheck:
        has_key = score.groups.codes[index] == ABSENT and self._has_key(score)[position]
        return verdict(score, index, has_key=bool(has_key))

    def _has_key(self, score: ConstraintScore) -> Bools:
        constraint = score.constraint
        fleet = self.decision.cycle.fleet
        return fleet.topology(
            constraint.topology_key, constraint.topology_key_type
        ).is_present

    def _candidate(
        self, one: Round, entry: CandidateScore, rank: int | None
    ) -> Candidate:
        position = entry.index
        winner = None if not rank or rank == 1 else int(one.ranked[0])
        return Candidate(
            cluster=self.names[position],
            rank=rank,
            topology_spread_score=None if entry.is_forbidden else entry.spread_score,
            affinity_score=one.candidates.affinity[position].item(),
            was_here=int(one.candidates.was_here_in(one.number)[position]),
            decided_by=None if winner is None else one.decided_by(winner, position),
            constraints=tuple(
                self._verdict(score, position, position)
                for score in entry.constraint_scores
            ),
            preferred=self.term_scores(position),
            combined={} if entry.is_forbidden else one.combined(position),
        )

    def term_scores(self, position: int) -> tuple[int, ...]:
        return tuple(int(column[position]) for column in self._term_columns)

    @cached_property
    def _term_columns(self) -> tuple[np.ndarray, ...]:
        cycle = self.decision.cycle
        return tuple(
            term_scores(term, cycle.fleet) for term in cycle.policy.preferred_terms
        )

    def _cut(self, one: Round) -> Cut | None:
        size = len(self.decision.picked)
        if not size:
            return None
        last = int(one.ranked[size - 1])
        if len(one.ranked) == size:
            return Cut(size, self.names[last], None, None)
        first_out = int(one.ranked[size])
        decided_by = one.decided_by(last, first_out)
        equal = equal_before(self.decision.cycle, decided_by)
        return Cut(size, self.names[last], self.names[first_out], decided_by, equal)


def rank_names(cycle: Cycle) -> list[str]:
    """Return the columns that rank, in their order, without those that are the same for every cluster."""
    unlike = {
        "topology": cycle.policy.topology_spread_constraints,
        "was-here": cycle.binding_classes.obsolete,
    }
    names = profile_of(cycle).strategy.rank_names
    return [name for name in names if unlike.get(name, True)]


def equal_before(cycle: Cycle, decided_by: str | None) -> tuple[str, ...]:
    """Return the columns that were equal when this one decided; empty where there was nothing to decide."""
    before = takewhile(lambda name: name != decided_by, rank_names(cycle))
    return () if decided_by is None else tuple(before)


def verdict(
    score: ConstraintScore, index: int, *, has_key: bool = False
) -> ConstraintCheck:
    code, projected = int(score.groups.codes[index]), score.projected
    has_group = code >= 0
    return ConstraintCheck(
        topology_key=score.constraint.topology_key,
        max_skew=score.constraint.max_skew,
        is_hard=is_hard(score.constraint),
        group=score.groups.values[code] if has_group else None,
        count=int(score.counts[code]) if has_group else None,
        smallest=int(projected.smallest[code]) if has_group else score.levels.smallest,
        skew_before=score.imbalance,
        skew_after=int(projected.after[code]) if has_group else None,
        limits_skew=projected.is_skew,
        score=score.score[index].item(),
        violates=bool(score.violates[index]),
        is_forbidden=bool(score.is_forbidden[index]),
        is_nested=_is_nested(score.groups),
        lacks_domains=score.lacks_domains,
        is_claim=score.constraint.topology_key_type is KeyType.CLAIM,
        has_key=has_key,
    )


def _is_nested(groups: Groups) -> bool:
    return groups.families is not None and bool(groups.families.any())


def _spread(
    score: ConstraintScore, one: Round, winner: int | None, has_key: Bools
) -> Spread:
    after = score.counts.copy()
    if winner is not None and score.groups.codes[winner] >= 0:
        after[score.groups.codes[winner]] += 1
    projected = one.candidates.strategy.project(score.constraint, score.groups, after)
    is_missing_key = (score.groups.codes == ABSENT) & ~has_key
    is_out = (
        score.is_forbidden
        & one.is_left
        & ((score.groups.codes != ABSENT) | is_missing_key)
    )
    return Spread(
        topology_key=score.constraint.topology_key,
        max_skew=score.constraint.max_skew,
        is_hard=is_hard(score.constraint),
        before=dict(zip(score.groups.values, score.counts.tolist(), strict=True)),
        after=dict(zip(score.groups.values, after.tolist(), strict=True)),
        skew_before=score.imbalance,
        skew_after=imbalance(after, projected),
        forbids=int(np.count_nonzero(is_out)),
        without_key=int(np.count_nonzero(is_out & is_missing_key)),
        limits_skew=score.projected.is_skew,
        is_nested=_is_nested(score.groups),
    )
