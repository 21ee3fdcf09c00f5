"""Semantics `fleet`: the spread rules as the Fleet guides document them (`spec/scheduler.md` 4.3)."""

from placements.scheduling.columns import Bools
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import Prospect
from placements.scheduling.spread.skew import SkewRules


class FleetSpread(SkewRules):
    """Only a pick that increases the skew can break the limit; a single group has no effect."""

    name = "fleet"
    was_here_in_first_round_only = False

    def violates(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Bools:
        """Break the limit only by making the skew larger than it is."""
        return (prospect.change > 0) & super().violates(constraint, prospect)
