"""Score: *was here*, 1 for a cluster with an obsolete binding of this placement (`spec/scheduler.md` 4.2)."""

import numpy as np

from placements.scheduling.columns import Ints
from placements.scheduling.cycle import Cycle


def was_here(cycle: Cycle) -> Ints:
    """Give 1 for each cluster that an older policy of this placement had placed, else 0."""
    return cycle.was_here.astype(np.int64)
