"""Bars that are told apart without colour: hatched over their colour in that of the page."""

from typing import Any


def hatched(colour: str, shape: str) -> dict[str, Any]:
    """Give the marker of a bar; an empty shape leaves it solid."""
    pattern = {"shape": shape, "fillmode": "overlay", "fgcolor": "var(--page)", "fgopacity": 0.8, "size": 6}
    return {"color": colour, "pattern": {**pattern, "solidity": 0.3}}
