"""What a filter answers: a column of verdicts, and why one cluster does not pass."""

from typing import Protocol

from placements.scheduling.columns import Bools
from placements.scheduling.cycle import Cycle
from placements.scheduling.reasons import Reason


class Filter(Protocol):
    """Rules clusters out before any is scored; the order of filters is the profile's."""

    name: str

    def passes(self, cycle: Cycle) -> Bools:
        """Mark the clusters that pass."""

    def reason(self, cycle: Cycle, position: int) -> Reason:
        """Say why the cluster at this position does not pass; asked only for those that do not."""
