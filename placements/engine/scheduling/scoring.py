"""The preference of clusters apart from topology spread: affinity and additional scores.

The profile of a cycle decides which `Preference` it has; picking, recording and explaining use it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from clusters.columns import Bools
from clusters.fleet import RESOURCE_PREFIX
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scores.ocm_prioritizers import (
    affinity_rows,
    prioritizers,
    raw_rows,
    weighed,
)
from placements.engine.scheduling.scores.preferred_affinity import affinity, term_scores
from placements.engine.scheduling.spread.base import DIGITS, Scores
from placements.manifests.affinity import PreferredTerm
from placements.manifests.ocm_options import OcmOptions
from placements.manifests.policy import KeyType


class ScoreSource(StrEnum):
    """Where points come from."""

    TERM = "term"
    ROWS = "rows"
    STEADY = "steady"
    BALANCE = "balance"
    CPU = "cpu"
    MEMORY = "memory"
    ADD_ON = "addOn"


@dataclass(frozen=True)
class ScoreComponent:
    """One of the numbers that a preference is the sum of, for every cluster of the fleet.

    `raw` are the sums of the rows before they were stretched over the candidates to these points; `weight`
    is what the other scores were multiplied by.
    """

    source: ScoreSource
    points: Scores
    term: PreferredTerm | None = None
    raw: Scores | None = None
    weight: float = 1


class AffinityScore:
    """What ranks clusters apart from their spread: here the sum of the preferred terms, and nothing else.

    `candidates` marks the clusters that pass every filter.
    """

    @property
    def reads_terms(self) -> bool:
        return True

    def affinity(self, cycle: Cycle, candidates: Bools) -> Scores:  # noqa: ARG002 -- subclasses read it
        """Return the affinity score: the one that is reported."""
        return affinity(cycle)

    def ranking(self, cycle: Cycle, candidates: Bools, reported: Scores) -> Scores:  # noqa: ARG002
        """Return the number that ranks, given the affinity score: that very column if nothing is added."""
        return reported

    def addends(self, cycle: Cycle, candidates: Bools) -> Iterator[ScoreComponent]:  # noqa: ARG002
        """Return what the number that ranks is the sum of, without those of no weight."""
        return _terms(cycle)

    def keys_read(self, kind: KeyType) -> frozenset[str]:  # noqa: ARG002
        """Return the label keys, or the claims, that it reads besides those of the policy."""
        return frozenset()

    def properties_read(self) -> frozenset[str]:
        """Return the properties that it reads besides those of the policy."""
        return frozenset()


class WeightedScore(AffinityScore):
    """Affinity rows instead of the terms where there are any; Steady, Balance and resources on top."""

    def __init__(self, options: OcmOptions) -> None:
        self.options = options

    @property
    def reads_terms(self) -> bool:
        """Return whether there are no rows, which replace the terms."""
        return not self.options.affinity_terms

    def affinity(self, cycle: Cycle, candidates: Bools) -> Scores:
        """Stretch the rows' sums over the candidates; without rows, add up the preferred terms."""
        if self.reads_terms:
            return affinity(cycle)
        return affinity_rows(self.options, cycle.fleet, candidates)

    def ranking(self, cycle: Cycle, candidates: Bools, reported: Scores) -> Scores:
        """Add the other scores, each by its weight."""
        return np.round(
            reported + prioritizers(self.options, cycle, candidates), DIGITS
        )

    def addends(self, cycle: Cycle, candidates: Bools) -> Iterator[ScoreComponent]:
        """Return the rows together or each preferred term, then the other scores."""
        if self.reads_terms:
            yield from _terms(cycle)
        else:
            raw = raw_rows(self.options, cycle.fleet)
            yield ScoreComponent(
                ScoreSource.ROWS, self.affinity(cycle, candidates), raw=raw
            )
        yield from (
            ScoreComponent(ScoreSource(name), weight * score, weight=weight)
            for name, weight, score in weighed(self.options, cycle, candidates)
        )

    def keys_read(self, kind: KeyType) -> frozenset[str]:
        rows = self.options.affinity_terms
        return frozenset(
            row.topology_key for row in rows if row.topology_key_type is kind
        )

    def properties_read(self) -> frozenset[str]:
        """Return the resources that have a weight."""
        weights = {"cpu": self.options.cpu_weight, "memory": self.options.memory_weight}
        return frozenset(
            f"{RESOURCE_PREFIX}{sort}-{name}"
            for name, weight in weights.items()
            for sort in ("allocatable", "total")
            if weight
        )


def _terms(cycle: Cycle) -> Iterator[ScoreComponent]:
    yield from (
        ScoreComponent(ScoreSource.TERM, term_scores(term, cycle.fleet), term=term)
        for term in cycle.policy.preferred_terms
    )
