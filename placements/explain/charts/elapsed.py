"""The axis of time of a run: seconds since its start, written as on a clock."""

from datetime import datetime, timedelta
from typing import Any

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_MOST_TICKS = 8
SHORTEST = 1.0
"""An axis is never shorter than this, in seconds."""


def seconds_between(since: datetime, until: datetime) -> float:
    """Give the time between two moments in seconds; none where the second comes first."""
    return max(0.0, (until - since) / timedelta(seconds=1))


def clock_words(seconds: float) -> str:
    """Write a span as on a clock: "0:31", "6:12", "1:02:09"; one below a second as "0.4 s"."""
    if 0.05 <= seconds < 1:
        return f"{min(seconds, 0.9):.1f} s"
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def elapsed_axis(longest: float) -> dict[str, Any]:
    """Give an axis from 0 to `longest` seconds with at most eight ticks at whole steps."""
    span = max(longest, SHORTEST)
    step = next((one for one in _STEPS if span / one <= _MOST_TICKS), int(span // _MOST_TICKS) + 1)
    ticks = list(range(0, int(span) + 1, step))
    return {
        "range": [0, span],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [clock_words(tick) for tick in ticks],
        "title": "elapsed",
    }
