"""Semantics `kubefleet`: the spread rules of the released KubeFleet scheduler (`spec/scheduler.md` 4.3)."""

import numpy as np

from placements.scheduling.columns import Ints
from placements.scheduling.spread.base import Prospect
from placements.scheduling.spread.skew import SkewRules


class KubeFleetSpread(SkewRules):
    """Any pick that leaves the skew above the limit breaks it, whether or not it made it worse."""

    name = "kubefleet"
    was_here_in_first_round_only = True

    def change(self, prospect: Prospect) -> Ints:
        """Count every pick in a single group as +1, as the released scheduler does."""
        if prospect.levels.groups == 1:
            return np.ones_like(prospect.counts)
        return prospect.change

    def after(self, prospect: Prospect) -> Ints:
        """Take the skew with one more in a single group for 1."""
        if prospect.levels.groups == 1:
            return np.ones_like(prospect.counts)
        return prospect.after
