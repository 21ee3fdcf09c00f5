"""What charts of bars share: hatches that tell them apart without colour, and ticks that people count by."""

from typing import Any

from placements.explain.charts.chart import whole_ticks

_COUNTED_UP_TO = 20


def hatched(colour: str, shape: str) -> dict[str, Any]:
    """Give the marker of a bar, hatched over its colour; an empty shape leaves it solid."""
    pattern = {"shape": shape, "fillmode": "overlay", "fgcolor": "var(--page)", "fgopacity": 0.8, "size": 6}
    return {"color": colour, "pattern": {**pattern, "solidity": 0.3}}


def round_ticks(largest: int) -> dict[str, Any]:
    """Give the ticks of an axis of counts: whole numbers while there are few, round ones beyond."""
    if largest <= _COUNTED_UP_TO:
        return whole_ticks(largest, most=10)
    return {"nticks": 10, "tickformat": ",d"}
