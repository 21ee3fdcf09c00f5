"""Semantics `kubernetes`: PodTopologySpread with clusters for nodes and bindings for pods.

KEP-895 and what has come since, made exact in `spec/other-schedulers.md` 3 and 6.6.
"""

from collections.abc import Sequence
from functools import reduce
from math import inf

import numpy as np

from placements.scheduling.columns import ABSENT, Bools, Codes, Ints
from placements.scheduling.policy import InclusionPolicy, TopologySpreadConstraint
from placements.scheduling.spread.base import (
    Groups,
    Keyless,
    Outlook,
    Race,
    Scores,
    Setting,
    Verdict,
    at_entries,
    is_hard,
)
from placements.scheduling.standings.base import Field, Standings
from placements.scheduling.standings.kubernetes import KubernetesStandings
from placements.scheduling.standings.kubernetes_rules import (
    BEST,
    SPREAD_WEIGHT,
    is_too_many,
    normalised,
    rounded,
    smallest_counted,
    soft_cost,
)


class KubernetesSpread:
    """Hard constraints filter by count + 1 − smallest; soft ones score 0 to 100, weighted by ln."""

    name = "kubernetes"
    rank_names: tuple[str, ...] = ("score",)
    smaller_name_wins = True
    has_score_list = False
    hard_ones_score = False
    was_here_in_first_round_only = False

    def groups(self, setting: Setting) -> tuple[Groups, ...]:
        """Make groups of the clusters that carry all keys of their sort and that the policies count."""
        return tuple(_groups(one, setting) for one in setting.constraints)

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """Count the bindings of the current policy on the clusters that are counted at all."""
        return groups.count(placed)

    def heeds(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """All of them; minDomains only where the constraint is hard."""
        soft = {"maxSkew", "nodeAffinityPolicy", "nodeTaintsPolicy"}
        return frozenset(soft | {"minDomains"} if is_hard(constraint) else soft)

    def keyless(self, constraint: TopologySpreadConstraint) -> Keyless:
        """Rule it out, or give it the lowest score."""
        return Keyless.EXCLUDED if is_hard(constraint) else Keyless.LAST

    def outlook(self, constraint: TopologySpreadConstraint, _groups: Groups, counts: Ints) -> Outlook:
        """Compare with the smallest group, or with 0 while there are fewer groups than minDomains."""
        smallest = np.full(len(counts), smallest_counted(constraint, counts), dtype=np.int64)
        return Outlook(smallest, counts + 1 - smallest, is_skew=False)

    def verdicts(self, race: Race) -> list[Verdict]:
        """Forbid what would exceed the smallest group by more than maxSkew, and who lacks a hard key."""
        nothing = np.zeros(len(race.left), dtype=np.bool_)
        verdicts = []
        for constraint, groups, counts in zip(race.constraints, race.groups, race.counts, strict=True):
            if is_hard(constraint):
                forbids = at_entries(is_too_many(constraint, counts), groups, keyless=True)
                verdicts.append(Verdict(forbids, forbids))
            else:
                verdicts.append(Verdict(nothing, nothing))
        return verdicts

    def scores(self, race: Race, contends: Bools) -> list[Scores]:
        """Give each soft constraint's cost, count times ln(groups + 2) plus maxSkew − 1; hard ones none."""
        return [
            _cost(constraint, groups, counts, contends)
            for constraint, groups, counts in zip(race.constraints, race.groups, race.counts, strict=True)
        ]

    def combine(self, race: Race, scores: Sequence[Scores], contends: Bools) -> tuple[Scores, ...]:
        """Normalise the summed costs to 0 (worst) to 100 over the contenders that carry every soft key."""
        soft = [index for index, one in enumerate(race.constraints) if not is_hard(one)]
        size = len(race.left)
        if not soft:
            return (np.zeros(size, dtype=np.int64),)
        has_keys = np.logical_and.reduce([race.groups[index].codes != ABSENT for index in soft])
        costs = rounded(reduce(np.add, [scores[index] for index in soft]).astype(np.float64, copy=False))
        counted = costs[has_keys & contends]
        largest, smallest = counted.max(initial=0), counted.min(initial=inf)
        if largest == 0:
            return (np.where(has_keys, BEST, 0),)
        return (np.where(has_keys, normalised(costs, largest, smallest), 0).astype(np.int64),)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, **_was_here: Ints
    ) -> tuple[Scores, ...]:
        """Rank by twice the spread score plus the affinity score; *was here* plays no part."""
        return (SPREAD_WEIGHT * spread[0] + preference,)

    def stops_without_candidate(self) -> bool:
        """Leave the rest pending."""
        return True

    def standings(self, field: Field) -> Standings | None:
        """Keep them where their numbers are exact."""
        return KubernetesStandings(field) if KubernetesStandings.holds(field) else None


def _groups(constraint: TopologySpreadConstraint, setting: Setting) -> Groups:
    sort = is_hard(constraint)
    counts = np.ones(len(setting.fleet), dtype=np.bool_)
    for one in setting.constraints:
        if is_hard(one) == sort:
            counts &= setting.fleet.label(one.topology_key).is_present
    if constraint.node_affinity_policy is not InclusionPolicy.IGNORE:
        counts &= setting.passes["affinity"]
    if constraint.node_taints_policy is InclusionPolicy.HONOR:
        counts &= setting.passes["taints"] & setting.passes["eligibility"]
    column = setting.fleet.label(constraint.topology_key)
    occurring = np.unique(column.codes[counts])
    number_of = np.full(len(column.values) + 1, ABSENT, dtype=np.int32)
    number_of[occurring] = np.arange(len(occurring), dtype=np.int32)
    codes = np.where(counts, number_of.take(column.codes), ABSENT).astype(np.int32)
    return Groups(tuple(column.values[code] for code in occurring.tolist()), codes)


def _cost(constraint: TopologySpreadConstraint, groups: Groups, counts: Ints, contends: Bools) -> Scores:
    if is_hard(constraint):
        return np.zeros(len(groups.codes), dtype=np.float64)
    is_reached = np.zeros(len(groups) + 1, dtype=np.bool_)  # the last is for entries in no group
    is_reached[groups.codes[contends]] = True
    domains = int(np.count_nonzero(is_reached[:-1]))
    return at_entries(soft_cost(constraint, counts.astype(np.float64), domains), groups, keyless=0)
