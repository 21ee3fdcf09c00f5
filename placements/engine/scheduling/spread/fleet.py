"""Spread strategies of the semantics `fleet` (as the Fleet guides document) and `kubefleet` (as released).

Both follow `rules/scheduler.md#topology-spread` and share the base class.
"""

from collections.abc import Sequence

import numpy as np

from clusters.columns import Bools, Ints
from placements.engine.scheduling.spread.base import (
    SOFT_VIOLATION_SCORE,
    ConstraintVerdict,
    Groups,
    MissingKeyPolicy,
    RoundState,
    Scores,
    SkewAfterPick,
    SkewProjection,
    SpreadInput,
    SpreadStrategy,
    at_entries,
    is_hard,
    levels_of,
)
from placements.manifests.policy import TopologySpreadConstraint


class SkewRules(SpreadStrategy):
    """Groups over the whole fleet, −change as score, constraints added, spread before affinity."""

    rank_names: tuple[str, ...] = ("topology", "affinity", "was-here")
    smaller_name_wins = False

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Form one domain per value that the key has on any cluster, eligible or not."""
        columns = (
            spread_input.fleet.label(constraint.topology_key)
            for constraint in spread_input.constraints
        )
        return tuple(Groups(column.values, column.codes) for column in columns)

    def relevant_fields(self, _constraint: TopologySpreadConstraint) -> frozenset[str]:
        """A limit forbids, or costs a thousand."""
        return frozenset({"maxSkew"})

    def keyless_score(self, _constraint: TopologySpreadConstraint) -> int | None:
        """A cluster without the key can be picked, with score 0."""
        return 0

    def missing_key(self, constraint: TopologySpreadConstraint) -> MissingKeyPolicy:
        """Return the meaning of `keyless_score` for such a cluster."""
        is_out = self.keyless_score(constraint) is None
        return MissingKeyPolicy.EXCLUDED if is_out else MissingKeyPolicy.UNLIMITED

    def project(
        self, _constraint: TopologySpreadConstraint, _groups: Groups, counts: Ints
    ) -> SkewProjection:
        """Compare with the smallest domain; what is limited is the skew with one more."""
        return self._projected(SkewAfterPick(counts, levels_of(counts)))

    def projections(self, state: RoundState) -> list[SkewProjection]:
        """Project from the skews that verdicts and scores are made of, too."""
        return [*map(self._projected, state.after_picks)]

    def _projected(self, after_pick: SkewAfterPick) -> SkewProjection:
        smallest = np.full_like(after_pick.counts, after_pick.levels.smallest)
        return SkewProjection(smallest, self.after(after_pick), is_skew=True)

    def after(self, after_pick: SkewAfterPick) -> Ints:
        return after_pick.after

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Judge each domain by the skew that one more would make; a hard constraint forbids a violation."""
        verdicts = []
        parts = zip(state.constraints, state.groups, state.after_picks, strict=True)
        for constraint, groups, after_pick in parts:
            violates = at_entries(
                self.violates(constraint, after_pick), groups, missing_key=False
            )
            verdicts.append(ConstraintVerdict(violates, violates & is_hard(constraint)))
        return verdicts

    def violates(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Bools:
        return np.greater(self.after(after_pick), constraint.max_skew)

    def change(self, after_pick: SkewAfterPick) -> Ints:
        return after_pick.change

    def scores(self, state: RoundState, _contends: Bools) -> list[Scores]:
        parts = zip(state.constraints, state.groups, state.after_picks, strict=True)
        return [
            at_entries(self.score(constraint, after_pick), groups, missing_key=0)
            for constraint, groups, after_pick in parts
        ]

    def score(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Ints:
        """Score −change, or −1000 when the limit is broken."""
        score: Ints = np.negative(self.change(after_pick))
        score[self.violates(constraint, after_pick)] = SOFT_VIOLATION_SCORE
        return score

    def combine(
        self, state: RoundState, scores: Sequence[Scores], _contends: Bools
    ) -> tuple[Scores, ...]:
        """Add the scores up; hard constraints score too."""
        total: Scores = np.zeros(len(state.left), dtype=np.int64)
        for score in scores:
            total = total + score
        return (total,)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, was_here: Ints
    ) -> tuple[Scores, ...]:
        """Rank by topology spread, then affinity, then a binding of an older policy."""
        return *spread, preference, was_here


class FleetSpread(SkewRules):
    """Only a pick that increases the skew can break the limit; a single domain has no effect."""

    name = "fleet"

    def violates(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Bools:
        """Break the limit only by making the skew larger than it is."""
        return (after_pick.change > 0) & super().violates(constraint, after_pick)


class KubeFleetSpread(SkewRules):
    """Any pick that leaves the skew above the limit breaks it, whether or not it made it worse."""

    name = "kubefleet"
    was_here_in_first_round_only = True

    def change(self, after_pick: SkewAfterPick) -> Ints:
        """Count every pick in a single domain as +1, as the released scheduler does."""
        if after_pick.levels.groups == 1:
            return np.ones_like(after_pick.counts)
        return after_pick.change

    def after(self, after_pick: SkewAfterPick) -> Ints:
        """The skew with one more in a single domain is 1."""
        if after_pick.levels.groups == 1:
            return np.ones_like(after_pick.counts)
        return after_pick.after
