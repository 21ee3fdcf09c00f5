"""A chart: what it says in one sentence, the figure, and the rows from which it is drawn."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
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


class GroupName(str):
    """The name of a group in a table, which knows its key: what may lead to the clusters of the group.

    `value` is None for those that lack the label.
    """

    __slots__ = ("key", "value")

    key: str
    value: str | None

    @classmethod
    def of(cls, key: str, value: str | None, words: str) -> "GroupName":
        """Name the group of a key and a value as people do."""
        name = cls(words)
        name.key, name.value = key, value
        return name


@dataclass(frozen=True, slots=True)
class Leads:
    """Where a chart leads to; the page that shows it says so, since a figure knows no addresses.

    `point` is the address for a press on a point of the figure: in its braces stand the facts of the point,
    `{x}`, or what the trace says of it in its `meta`. `cells` are those of the first cells of each row.
    """

    point: str
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of facts.

    `name` is its id on the page and in the address of its table. `caption` says in a sentence what the
    picture shows: it is the accessible name of the figure. `rows` holds what the figure aggregates, a cell
    per column; numbers are numbers. `leads` is where its points and rows lead to, if anywhere.
    """

    name: str
    title: str
    caption: str
    figure: go.Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    leads: Leads | None = None

    @property
    def heads(self) -> list[tuple[str, bool]]:
        """Give the heads of the table, and whether numbers stand below them."""
        by_column = zip_longest(*self.rows, fillvalue=None) if self.rows else ((),) * len(self.columns)
        return [(head, _are_numbers(cells)) for head, cells in zip(self.columns, by_column, strict=True)]

    def lines(self, start: int = 0, end: int | None = None) -> list[list[tuple[Cell, str, bool]]]:
        """Give some rows of the table: each cell, where it leads to, and if it is among numbers."""
        links = self.leads.cells[start:end] if self.leads else ()
        numeric = [is_number for _, is_number in self.heads]
        pairs = zip_longest(self.rows[start:end], links, fillvalue=())
        return [
            list(zip(row, chain(addresses, repeat("")), numeric, strict=False)) for row, addresses in pairs
        ]

    @property
    def height(self) -> int:
        """Give the height of the figure in CSS pixels."""
        return int(self.figure.layout.height)

    @property
    def json(self) -> str:
        """Give the figure as JSON that is safe inside a script element: `<`, `>` and `/` are escaped."""
        text: str = self.figure.to_json(validate=True, engine="json")
        return text


def _are_numbers(cells: Iterable[Cell]) -> bool:
    """Tell whether a column holds numbers, and nothing else but gaps."""
    told = [cell for cell in cells if cell is not None]
    return bool(told) and not any(isinstance(cell, str) for cell in told)


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
