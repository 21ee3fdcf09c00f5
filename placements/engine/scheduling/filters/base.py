"""The result of a filter: a column of verdicts, and the reason why a cluster does not pass."""

from typing import Protocol

from clusters.columns import Bools
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason


class Filter(Protocol):
    """Rules clusters out before any is scored; the order of filters is the profile's."""

    name: str

    def passes(self, cycle: Cycle) -> Bools:
        """Return which clusters pass."""

    def reason(self, cycle: Cycle, position: int) -> Reason:
        """Return why the cluster at this position does not pass; called only for those that do not."""
