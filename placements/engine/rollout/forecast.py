"""How long the rest of a run takes at the rate of its clusters that are done. All times are in seconds."""

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple


class WorkSpan(NamedTuple):
    """Work on one cluster: when it started, when it ended (None while in progress), and whether it is done.

    What failed has ended without being done.
    """

    start: float
    end: float | None = None
    is_done: bool = True


def seconds_left(
    spans: Sequence[WorkSpan], *, waiting: int, now: float
) -> float | None:
    """Return the time left of a run in which `waiting` clusters have not started, None in its first wave.

    Time in which no cluster was in progress does not count: approvals, timed waits and pauses. While nothing
    ends for longer than the clusters in progress should take, the time left grows.
    """
    ends = sorted(span.end for span in spans if span.end is not None and span.is_done)
    if not ends or len(ends) < sum(span.start < ends[0] for span in spans):
        return None
    worked = _worked(spans, until=ends[-1])
    since = _worked(spans, until=now) - worked
    running = sum(span.end is None for span in spans)
    a_cluster = worked / len(ends)
    due = a_cluster * running
    return max(0.0, a_cluster * (running + waiting) - due + abs(due - since))


def _worked(spans: Sequence[WorkSpan], *, until: float) -> float:
    """Return for how long at least one cluster was in progress."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=attrgetter("start")):
        end = until if span.end is None else min(span.end, until)
        start = max(span.start, reached)
        if end > start:
            total += end - start
            reached = end
    return total
