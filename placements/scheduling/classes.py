"""Classes of clusters that agree on all that a cycle reads: they differ in nothing but their name.

A fleet of thousands has some tens of them, so a table or a picture can have a row for each.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements.scheduling.candidates import Candidates, candidates_of
from placements.scheduling.columns import Ints
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.reads import labels_read


@dataclass(frozen=True)
class Classes:
    """The classes of one cycle: the class of every cluster, and how a class is called."""

    cycle: Cycle
    candidates: Candidates

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Give the label keys that tell classes apart, those of the spread first."""
        spread = [one.topology_key for one in self.cycle.policy.topology_spread_constraints]
        read = labels_read(self.cycle)
        return (*(key for key in dict.fromkeys(spread) if key in read), *(k for k in read if k not in spread))

    @cached_property
    def of(self) -> Ints:
        """Give each cluster the number of its class."""
        fleet, candidates = self.cycle.fleet, self.candidates
        labels = (fleet.label(key).codes for key in self.keys)
        groups = (one.codes for one in candidates.groups)
        facts = (candidates.failed, fleet.taint_codes, fleet.is_eligible, candidates.was_here)
        scores = np.unique(candidates.preference, return_inverse=True)[1]
        table = np.stack([np.asarray(one, dtype=np.int64) for one in (*labels, *groups, *facts, scores)])
        return np.unique(table, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)

    @cached_property
    def sizes(self) -> Ints:
        """Count the clusters of each class."""
        return np.bincount(self.of, minlength=1).astype(np.int64)

    @cached_property
    def members(self) -> list[Ints]:
        """Give the positions of each class, by name."""
        order = np.argsort(self.of, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    def words(self, position: int) -> str:
        """Call the class of a cluster by the values that make it: "east / prod / critical"."""
        cluster = self.cycle.fleet.clusters[position]
        values = [cluster.labels.get(key, f"no {key}") for key in self.keys]
        values += ["tainted"] if cluster.taints else []
        values += ["not eligible"] if cluster.eligibility.kind else []
        return " / ".join(values) or "alike in all that the policy reads"


def classes_of(decision: Decision) -> Classes:
    """Give the classes of a decision's fleet. Raises Faults for options that no door would take."""
    return Classes(decision.cycle, decision.candidates or candidates_of(decision.cycle))
