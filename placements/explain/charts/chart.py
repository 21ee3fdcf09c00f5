"""A chart: what it says in one sentence, the figure, and the rows from which it is drawn."""

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

OK = "var(--ok)"
ATTENTION = "var(--attention)"
FAILED = "var(--failed)"
BLOCKED = "var(--blocked)"
NEUTRAL = "var(--neutral)"
TEXT = "var(--text)"
QUIET = "var(--quiet)"
ACCENT = "var(--accent)"
ON_OK = "var(--on-ok)"
ON_ACCENT = "var(--on-accent)"
DIVIDER = "var(--divider)"
PAGE = "var(--page)"
PANEL = "var(--panel)"
"""Colours by the names of `tokens.css`."""

RAMP = [[step / 6, f"var(--ramp-{step + 1})"] for step in range(7)]
"""The colour scale of scores, symmetric about 0."""

_MARGIN = {"l": 8, "r": 16, "t": 8, "b": 8}

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of facts.

    `name` is its id on the page and in the address of its table. `caption` says in a sentence what the
    picture shows: it is the accessible name of the figure. `rows` holds what the figure aggregates, a cell
    per column; numbers are numbers.
    """

    name: str
    title: str
    caption: str
    figure: go.Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def height(self) -> int:
        """Give the height of the figure in CSS pixels."""
        return int(self.figure.layout.height)

    @property
    def json(self) -> str:
        """Give the figure as JSON that is safe inside a script element: `<`, `>` and `/` are escaped."""
        text: str = self.figure.to_json(validate=True, engine="json")
        return text


def whole_ticks(largest: int, *, most: int = 6) -> dict[str, Any]:
    """Give the ticks of an axis of counts from 0 to `largest`: whole numbers, about `most` of them."""
    return {"dtick": max(1, -(-largest // most)), "tick0": 0, "tickformat": ",d"}


def figure(*traces: Any, height: int, **layout: Any) -> go.Figure:
    """Make a figure of validated traces without Plotly's template; `height` is in CSS pixels.

    Fonts, grid and background come from the stylesheet when it is drawn.
    """
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": _MARGIN,
        "showlegend": False,
        "hovermode": "closest",
        "separators": ".,",
    }
    return go.Figure(data=list(traces), layout={**base, **layout})
