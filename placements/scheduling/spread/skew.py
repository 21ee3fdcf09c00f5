"""What the two readings of Fleet's spread rules have in common (`spec/scheduler.md` 4.3)."""

from collections.abc import Sequence

import numpy as np

from placements.scheduling.columns import Bools, Codes, Ints
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import SOFT_VIOLATION_SCORE, Groups, Prospect


class SkewRules:
    """Groups over the whole fleet, −change as score, constraints added, spread before affinity."""

    def groups(self, constraint: TopologySpreadConstraint, fleet: Fleet) -> Groups:
        """Make one group per value that the key has on any cluster, eligible or not."""
        column = fleet.label(constraint.topology_key)
        return Groups(column.values, column.codes)

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """Count the scheduled and bound bindings of the current policy."""
        return groups.count(placed)

    def keyless_score(self, _constraint: TopologySpreadConstraint) -> int | None:
        """Let a cluster without the key be picked, with score 0."""
        return 0

    def violates(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Bools:
        """Compare the skew that would result with maxSkew."""
        return np.greater(prospect.after, constraint.max_skew)

    def change(self, prospect: Prospect) -> Ints:
        """Give the change of the skew that the score is made of."""
        return prospect.change

    def score(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Ints:
        """Score −change, or −1000 when the limit is broken."""
        score: Ints = np.negative(self.change(prospect))
        score[self.violates(constraint, prospect)] = SOFT_VIOLATION_SCORE
        return score

    def combine(self, scores: Sequence[Ints]) -> Ints:
        """Add the scores up; hard constraints score too."""
        total: Ints = np.sum(np.stack(scores), axis=0, dtype=np.int64)
        return total

    def rank(self, *, spread: Ints, affinity: Ints, was_here: Ints) -> tuple[Ints, ...]:
        """Rank by topology spread, then affinity, then a binding of an older policy."""
        return spread, affinity, was_here

    def stops_without_candidate(self) -> bool:
        """Keep what was picked; the next change in the fleet tries again."""
        return True
