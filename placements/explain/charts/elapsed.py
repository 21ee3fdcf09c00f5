"""The axis of time of a run: seconds since its start, written as on a clock."""

from datetime import datetime, timedelta
from typing import Any

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_MOST_TICKS = 8
_IN_TENTHS = 10
"""Spans shorter than so many seconds are written with tenths: "0:00" and "0:00" would not tell them apart."""
SHORTEST = 1.0
"""An axis is never shorter than this, in seconds."""


def seconds_between(since: datetime, until: datetime) -> float:
    """Give the time between two moments in seconds; none where the second comes first."""
    return max(0.0, (until - since) / timedelta(seconds=1))


def clock_words(seconds: float) -> str:
    """Write a span as on a clock: "0:00.4", "0:31", "6:12", "1:02:09"."""
    tenths = int(seconds * 10 + 1e-6)
    if seconds < _IN_TENTHS and tenths % 10:
        return f"0:0{tenths // 10}.{tenths % 10}"
    whole = tenths // 10
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def elapsed_axis(longest: float) -> dict[str, Any]:
    """Give an axis from 0 to `longest` seconds with at most eight ticks at whole steps."""
    span = max(longest, SHORTEST)
    step = next((one for one in _STEPS if span / one <= _MOST_TICKS), int(span // _MOST_TICKS) + 1)
    ticks = [round(place * step, 1) for place in range(int(span / step + 1e-6) + 1)]
    return {
        "range": [0, span],
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": [clock_words(tick) for tick in ticks],
        "title": "elapsed",
    }
