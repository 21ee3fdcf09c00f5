"""A chart: a caption, a figure and the rows that it is drawn from; and what all figures share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import plotly.graph_objects as go


class Color:
    """Colors by the names of `tokens.css`: of states, and of series that are no state (SERIES, NEUTRAL)."""

    HEALTHY = "var(--healthy)"
    WELL = "var(--well)"
    PROGRESS = "var(--progress)"
    ATTENTION = "var(--attention)"
    FAILED = "var(--failed)"
    UNKNOWN = "var(--unknown)"
    SERIES = "var(--series)"
    NEUTRAL = "var(--neutral)"
    TEXT = "var(--text)"
    QUIET = "var(--quiet)"
    ACCENT = "var(--accent)"
    ON_ACCENT = "var(--on-accent)"
    BORDER = "var(--border)"
    PLACED = "var(--placed)"
    ON_PLACED = "var(--on-placed)"
    BAND = "var(--band)"
    HATCH = "var(--hatch)"
    CALM = "var(--calm)"
    HOVER = "var(--hover)"
    COST = "var(--cost)"
    PAGE = "var(--page)"
    CLEAR = "rgba(0,0,0,0)"


RAMP = [[step / 6, f"var(--ramp-{step + 1})"] for step in range(7)]
"""The color scale of scores, symmetric about 0."""

OUTLINED = {"color": Color.CLEAR, "line": {"color": Color.QUIET, "width": 1}}
HATCHED = {
    **OUTLINED,
    "pattern": {
        "shape": "/",
        "fgcolor": Color.QUIET,
        "bgcolor": Color.CLEAR,
        "size": 6,
    },
}
"""The marker of bars of clusters that cannot be selected."""
LEGEND_ABOVE: dict[str, Any] = {
    "showlegend": True,
    "legend": {
        "orientation": "h",
        "x": 0,
        "y": 1,
        "yanchor": "bottom",
        "traceorder": "normal",
    },
    "margin": {"l": 8, "r": 16, "t": 32, "b": 8},
}
"""Layout of a chart whose colors need a legend."""

Cell = str | int | float | None


class GroupName(str):
    """The name of a domain in a table with its key, for links; `value` None: clusters without the label."""

    __slots__ = ("key", "value")

    key: str
    value: str | None

    @classmethod
    def of(
        cls,
        key: str,
        value: str | None,
        words: str,
    ) -> "GroupName":
        name = cls(words)
        name.key, name.value = key, value
        return name


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of facts.

    `name` is its id on the page and in the address of its table. `caption` is a sentence about what the
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
    def heads(self) -> list[tuple[str, bool]]:
        by_column = (
            zip_longest(*self.rows, fillvalue=None)
            if self.rows
            else ((),) * len(self.columns)
        )
        filled = ([cell for cell in column if cell is not None] for column in by_column)
        return [
            (head, bool(cells) and not any(isinstance(cell, str) for cell in cells))
            for head, cells in zip(self.columns, filled, strict=True)
        ]

    def lines(
        self, start: int = 0, end: int | None = None
    ) -> list[list[tuple[Cell, bool]]]:
        """Return some rows of the table: each cell, and whether its column holds numbers."""
        numeric = [is_number for _, is_number in self.heads]
        return [list(zip(row, numeric, strict=True)) for row in self.rows[start:end]]

    @property
    def height(self) -> int:
        return int(self.figure.layout.height)

    @property
    def json(self) -> str:
        """The figure as JSON that is safe inside a script element: `<`, `>` and `/` are escaped."""
        text: str = self.figure.to_json(validate=True, engine="json")
        return text


def number_axis(
    low: float,
    high: float,
    title: str,
    *,
    room: float = 0.15,
) -> dict[str, Any]:
    """Return the axis of bars from zero to both sides, with about six round ticks.

    `room`: the part of its length beyond the longest bars, for numbers.
    """
    beyond = room * max(1, high - low)
    start = low - beyond if low < 0 else 0
    end = high + beyond if high > 0 or low == 0 else 0
    scale = 10 ** max(0, math.floor(math.log10((end - start) / 6)))
    step = next(one * scale for one in (1, 2, 5, 10) if one * scale * 6 >= end - start)
    ticks = range(-math.floor(-start / step) * step, math.floor(end) + 1, step)
    return {
        "title": title,
        "range": [start, end],
        "tickvals": list(ticks),
        "ticktext": [f"{tick:,}".replace("-", "−") for tick in ticks],
    }


def row_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Return the axis of rows that are numbered from the top, with their labels."""
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": list(labels),
        "range": [len(labels) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
    }


def figure(*traces: Any, height: int, **layout: Any) -> go.Figure:
    """Return a figure of validated traces without Plotly's template; `height` is in CSS pixels.

    Fonts, grid and background come from the stylesheet when it is drawn.
    """
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
        "showlegend": False,
        "hovermode": "closest",
        "separators": ".,",
    }
    return go.Figure(data=list(traces), layout={**base, **layout})


def matrix(
    cells: Sequence[Sequence[float | None]],
    *,
    texts: Sequence[Sequence[str]],
    marker: dict[str, Any],
    **more: Any,
) -> go.Bar:
    """Return a square for each cell that has a number, coloured by it: column 0 is at x 0, row 0 at y 0.

    Bars, because the smallest build of Plotly has no heatmaps. `marker` has the scale of colors.
    """
    found = [
        (row, column, cell)
        for row, line in enumerate(cells)
        for column, cell in enumerate(line)
        if cell is not None
    ]
    return go.Bar(
        orientation="h",
        y=[row for row, *_ in found],
        base=[column - 0.48 for _, column, _ in found],
        x=[0.96] * len(found),
        width=0.94,
        marker={"color": [cell for *_, cell in found], **marker},
        customdata=[cell for *_, cell in found],
        hovertext=[texts[row][column] for row, column, _ in found],
        hovertemplate="%{hovertext}<extra></extra>",
        **more,
    )


def stacked_bars(
    names: Sequence[str],
    parts: Sequence[tuple[str, str, str, Sequence[int]]],
    *,
    height: int,
    bargap: float,
) -> go.Figure:
    """Return a stacked bar of numbers of clusters for each name.

    A part has a name, a color, a hatch and its counts.
    """
    largest = max(
        map(sum, zip(*(counts for *_, counts in parts), strict=True)), default=0
    )
    bars = [
        go.Bar(
            name=words,
            orientation="h",
            y=list(range(len(names))),
            x=counts,
            marker=hatched(color, hatch),
            hovertemplate=f"%{{y}}: %{{x}} {words}<extra></extra>",
        )
        for words, color, hatch, counts in parts
    ]
    return figure(
        *bars,
        height=height,
        barmode="stack",
        bargap=bargap,
        yaxis=row_axis(names),
        xaxis=number_axis(0, largest, "clusters", room=0.04),
        **LEGEND_ABOVE,
    )


def hatched(color: str, shape: str) -> dict[str, Any]:
    """Return the marker of a bar, hatched over its color; an empty shape leaves it solid."""
    pattern = {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": Color.PAGE,
        "fgopacity": 0.8,
        "size": 6,
    }
    return {"color": color, "pattern": {**pattern, "solidity": 0.3}}
