"""What ranks the clusters of one cycle apart from their spread: affinity, and what may be added.

`Preference` is asked by all that picks, records and explains; which of them a cycle has says its profile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from placements.scheduling.columns import Bools
from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_options import OcmOptions
from placements.scheduling.fleet import RESOURCE_PREFIX
from placements.scheduling.policy import KeyType, PreferredTerm
from placements.scheduling.scores.preferred import affinity, term_scores
from placements.scheduling.scores.prioritizers import affinity_rows, prioritizers, raw_rows, weighed
from placements.scheduling.spread.base import DIGITS, Scores


class Source(StrEnum):
    """What gives points."""

    TERM = "term"
    ROWS = "rows"
    STEADY = "steady"
    BALANCE = "balance"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True)
class Addend:
    """One of the numbers that a preference is the sum of, for every cluster of the fleet.

    `raw` are the sums of the rows before they were stretched over the candidates to these points; `weight`
    is what the other scores were multiplied by.
    """

    source: Source
    points: Scores
    term: PreferredTerm | None = None
    raw: Scores | None = None
    weight: float = 1


class Preference(Protocol):
    """What ranks clusters apart from their spread; `candidates` marks those that pass every filter."""

    @property
    def reads_terms(self) -> bool:
        """Tell whether the preferred terms of the policy count."""

    def affinity(self, cycle: Cycle, candidates: Bools) -> Scores:
        """Give the affinity score: what people are told."""

    def ranking(self, cycle: Cycle, candidates: Bools, told: Scores) -> Scores:
        """Give the number that ranks, given the affinity score: that very column if nothing is added."""

    def addends(self, cycle: Cycle, candidates: Bools) -> Iterator[Addend]:
        """Give what the number that ranks is the sum of, those of no weight left out."""

    def keys_read(self, kind: KeyType) -> frozenset[str]:
        """Give the label keys, or the claims, that it reads beside those of the policy."""

    def properties_read(self) -> frozenset[str]:
        """Give the properties that it reads beside those of the policy."""


class TermPreference:
    """The sum of the preferred terms, and nothing else."""

    reads_terms = True

    def affinity(self, cycle: Cycle, _candidates: Bools) -> Scores:
        """Add up the preferred terms."""
        return affinity(cycle)

    def ranking(self, _cycle: Cycle, _candidates: Bools, told: Scores) -> Scores:
        """Rank by what is told."""
        return told

    def addends(self, cycle: Cycle, _candidates: Bools) -> Iterator[Addend]:
        """Give each preferred term."""
        return _terms(cycle)

    def keys_read(self, _kind: KeyType) -> frozenset[str]:
        """Read the policy only."""
        return frozenset()

    def properties_read(self) -> frozenset[str]:
        """Read the policy only."""
        return frozenset()


class WeighedPreference:
    """Affinity rows in the place of the terms where there are any; Steady, Balance and resources on top."""

    def __init__(self, options: OcmOptions) -> None:
        self.options = options

    @property
    def reads_terms(self) -> bool:
        """Tell whether there are no rows, which take their place."""
        return not self.options.affinity_terms

    def affinity(self, cycle: Cycle, candidates: Bools) -> Scores:
        """Stretch the rows' sums over the candidates; without rows, add up the preferred terms."""
        if self.reads_terms:
            return affinity(cycle)
        return affinity_rows(self.options, cycle.fleet, candidates)

    def ranking(self, cycle: Cycle, candidates: Bools, told: Scores) -> Scores:
        """Add the other scores, each by its weight."""
        return np.round(told + prioritizers(self.options, cycle, candidates), DIGITS)

    def addends(self, cycle: Cycle, candidates: Bools) -> Iterator[Addend]:
        """Give the rows together or each preferred term, then the other scores."""
        if self.reads_terms:
            yield from _terms(cycle)
        else:
            raw = raw_rows(self.options, cycle.fleet)
            yield Addend(Source.ROWS, self.affinity(cycle, candidates), raw=raw)
        for name, weight, score in weighed(self.options, cycle, candidates):
            yield Addend(Source(name), weight * score, weight=weight)

    def keys_read(self, kind: KeyType) -> frozenset[str]:
        """Give the keys of the rows."""
        rows = self.options.affinity_terms
        return frozenset(one.topology_key for one in rows if one.topology_key_type is kind)

    def properties_read(self) -> frozenset[str]:
        """Give the resources that have a weight."""
        weights = {"cpu": self.options.cpu_weight, "memory": self.options.memory_weight}
        return frozenset(f"{RESOURCE_PREFIX}allocatable-{name}" for name, weight in weights.items() if weight)


def _terms(cycle: Cycle) -> Iterator[Addend]:
    for term in cycle.policy.preferred_terms:
        yield Addend(Source.TERM, term_scores(term, cycle.fleet), term=term)
