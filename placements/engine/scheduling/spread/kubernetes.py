"""Spread strategy of the semantics `kubernetes`: PodTopologySpread with clusters as nodes, bindings as pods.

Its formulas are those of KEP-895 and later releases (`rules/other-schedulers.md#kubernetes`).
"""

from collections.abc import Sequence
from functools import reduce
from math import log

import numpy as np

from clusters.columns import ABSENT, Bools, Ints
from placements.engine.scheduling.spread.base import (
    ConstraintVerdict,
    Groups,
    MissingKeyPolicy,
    RoundState,
    Scores,
    SkewProjection,
    SpreadInput,
    SpreadStrategy,
    at_entries,
    is_hard,
)
from placements.manifests.policy import InclusionPolicy, TopologySpreadConstraint

BEST = 100
SPREAD_WEIGHT = 2  # of PodTopologySpread in the default profile


def smallest_counted(constraint: TopologySpreadConstraint, counts: Ints) -> int:
    """Return the smallest count, which is 0 while there are fewer domains than minDomains."""
    if len(counts) < (constraint.min_domains or 1):
        return 0
    return int(counts.min())


def is_too_many(constraint: TopologySpreadConstraint, counts: Ints) -> Bools:
    """Return the domains in which one more would exceed the smallest by more than maxSkew."""
    return counts + (1 - smallest_counted(constraint, counts)) > constraint.max_skew


class KubernetesSpread(SpreadStrategy):
    """Hard constraints filter by count + 1 − smallest; soft ones score 0 to 100, weighted by ln."""

    name = "kubernetes"
    rank_names: tuple[str, ...] = ("score",)
    hard_ones_score = False

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Form domains of the clusters that have all keys of their kind and that the policies count."""
        return tuple(
            _groups(constraint, spread_input) for constraint in spread_input.constraints
        )

    def relevant_fields(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """All of them; minDomains only where the constraint is hard."""
        soft = {"maxSkew", "nodeAffinityPolicy", "nodeTaintsPolicy"}
        return frozenset(soft | {"minDomains"} if is_hard(constraint) else soft)

    def missing_key(self, constraint: TopologySpreadConstraint) -> MissingKeyPolicy:
        """Forbid it, or score it lowest."""
        return (
            MissingKeyPolicy.EXCLUDED if is_hard(constraint) else MissingKeyPolicy.LAST
        )

    def project(
        self, constraint: TopologySpreadConstraint, _groups: Groups, counts: Ints
    ) -> SkewProjection:
        """Compare with the smallest domain, or with 0 while there are fewer domains than minDomains."""
        smallest = np.full(
            len(counts), smallest_counted(constraint, counts), dtype=np.int64
        )
        return SkewProjection(smallest, counts + 1 - smallest, is_skew=False)

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Forbid what would exceed the smallest domain by more than maxSkew, and without a hard key."""
        nothing = np.zeros(len(state.left), dtype=np.bool_)
        verdicts = []
        for constraint, groups, counts in state.parts:
            if is_hard(constraint):
                forbids = at_entries(
                    is_too_many(constraint, counts), groups, missing_key=True
                )
                verdicts.append(ConstraintVerdict(forbids, forbids))
            else:
                verdicts.append(ConstraintVerdict(nothing, nothing))
        return verdicts

    def scores(self, state: RoundState, contends: Bools) -> list[Scores]:
        """Return each soft one's cost, count times ln(domains + 2) plus maxSkew - 1, no hard ones."""
        return [
            _cost(constraint, groups, counts, contends)
            for constraint, groups, counts in state.parts
        ]

    def combine(
        self, state: RoundState, scores: Sequence[Scores], contends: Bools
    ) -> tuple[Scores, ...]:
        """Normalize the summed costs to 0 (worst) to 100 over the contenders that have every soft key."""
        soft = [
            index
            for index, constraint in enumerate(state.constraints)
            if not is_hard(constraint)
        ]
        if not soft:
            return (np.zeros(len(state.left), dtype=np.int64),)
        has_keys = reduce(
            np.logical_and, [state.groups[index].is_present for index in soft]
        )

        # Add the costs in the order of the constraints, which fixes the last bit. Costs are never negative:
        # half is rounded up.
        costs = np.floor(reduce(np.add, [scores[index] for index in soft]) + 0.5)
        counted = costs[has_keys & contends]
        largest = np.maximum.reduce(counted, initial=0)
        if largest == 0:
            return (np.where(has_keys, BEST, 0),)

        # Exact below 2^53 divided by 100.
        smallest = np.minimum.reduce(counted)
        normalized = np.floor((largest + smallest - costs) * BEST / largest)
        return ((normalized * has_keys).astype(np.int64),)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, **_was_here: Ints
    ) -> tuple[Scores, ...]:
        """Rank by twice the spread score plus the affinity score; *was here* plays no part."""
        return (SPREAD_WEIGHT * spread[0] + preference,)


def _groups(constraint: TopologySpreadConstraint, spread_input: SpreadInput) -> Groups:
    sort = is_hard(constraint)
    counts = np.ones(len(spread_input.fleet), dtype=np.bool_)
    for topology_spread_constraint in spread_input.constraints:
        if is_hard(topology_spread_constraint) == sort:
            counts &= spread_input.fleet.label(
                topology_spread_constraint.topology_key
            ).is_present
    if constraint.node_affinity_policy is not InclusionPolicy.IGNORE:
        counts &= spread_input.passes["affinity"]
    if constraint.node_taints_policy is InclusionPolicy.HONOR:
        counts &= spread_input.passes["taints"] & spread_input.passes["eligibility"]
    column = spread_input.fleet.label(constraint.topology_key)
    occurring = np.unique(column.codes[counts])
    number_of = np.full(len(column.values) + 1, ABSENT, dtype=np.int32)
    number_of[occurring] = np.arange(len(occurring), dtype=np.int32)
    codes = np.where(counts, number_of.take(column.codes), ABSENT).astype(np.int32)
    return Groups(tuple(column.values[code] for code in occurring.tolist()), codes)


def _cost(
    constraint: TopologySpreadConstraint, groups: Groups, counts: Ints, contends: Bools
) -> Scores:
    if is_hard(constraint):
        return np.zeros(len(groups.codes), dtype=np.float64)
    domains = len(groups.reached(contends))
    costs = counts.astype(np.float64) * log(domains + 2) + (constraint.max_skew - 1)
    return at_entries(costs, groups, missing_key=0)
