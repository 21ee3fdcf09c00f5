"""Classes of clusters that differ in their name only, as far as a cycle reads them.

A fleet of thousands has some tens of classes, so a table or chart can have a row for each.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clusters.columns import Ints
from placements.engine.scheduling.candidates import Candidates, candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision, labels_read


@dataclass(frozen=True)
class EquivalenceClasses:
    """The classes of one cycle: the class of every cluster, and how a class is called."""

    cycle: Cycle
    candidates: Candidates

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Return the label keys that distinguish classes, those of the spread first."""
        spread = [
            one.topology_key for one in self.cycle.policy.topology_spread_constraints
        ]
        used = labels_read(self.cycle)
        return (
            *(key for key in dict.fromkeys(spread) if key in used),
            *(k for k in used if k not in spread),
        )

    @cached_property
    def of(self) -> Ints:
        """Return for each cluster the number of its class."""
        fleet, candidates = self.cycle.fleet, self.candidates
        labels = (fleet.label(key).codes for key in self.keys)
        groups = (one.codes for one in candidates.groups)
        facts = (
            candidates.failed,
            fleet.taint_codes,
            fleet.is_eligible,
            candidates.was_here,
        )
        scores = np.unique(candidates.preference, return_inverse=True)[1]
        table = np.stack(
            [
                np.asarray(one, dtype=np.int64)
                for one in (*labels, *groups, *facts, scores)
            ]
        )
        return (
            np.unique(table, axis=1, return_inverse=True)[1]
            .reshape(-1)
            .astype(np.int64)
        )

    @cached_property
    def sizes(self) -> Ints:
        return np.bincount(self.of, minlength=1).astype(np.int64)

    @cached_property
    def members(self) -> list[Ints]:
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    def words(self, position: int) -> str:
        """Return the values that make the class of a cluster: "east / prod / critical"."""
        cluster = self.cycle.fleet.clusters[position]
        values = [cluster.labels.get(key, f"no {key}") for key in self.keys]
        values += ["tainted"] if cluster.taints else []
        values += ["not eligible"] if cluster.eligibility.kind else []
        return " / ".join(values) or "alike in all that the policy reads"


def classes_of(decision: Decision) -> EquivalenceClasses:
    """Return the classes of a decision's fleet. Raise InvalidManifest for invalid options."""
    return EquivalenceClasses(
        decision.cycle, decision.candidates or candidates_of(decision.cycle)
    )
