"""The fleet by its labels: bars for one label, a matrix as in C3 for two."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from placements.explain.charts.bars import hatched, round_ticks
from placements.explain.charts.chart import (
    ATTENTION,
    BLOCKED,
    FAILED,
    NEUTRAL,
    OK,
    Cell,
    Chart,
    GroupName,
    figure,
)

MOST_BARS, MOST_SIDE = 40, 40
NO_LABEL = "no label"
STATES = {
    "eligible": (OK, ""),
    "joining": (NEUTRAL, "."),
    "cordoned": (ATTENTION, "/"),
    "not eligible": (FAILED, "x"),
    "leaving": (BLOCKED, "-"),
}
"""Colour and hatch of how a cluster stands."""
_COUNTS = [[step / 3, f"var(--ramp-{step + 4})"] for step in range(4)]
_BAR, _CELL, _AROUND = 26, 28, 72


@dataclass(frozen=True, slots=True)
class Grouped:
    """One group: its values, None where clusters lack the label, and its clusters by how they stand."""

    values: tuple[str | None, ...]
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Count its clusters."""
        return sum(self.counts.values())


def topology_chart(keys: tuple[str, ...], groups: Sequence[Grouped]) -> Chart | None:
    """Draw the groups of one label or two; None without clusters."""
    if not groups:
        return None
    states = [state for state in STATES if any(one.counts.get(state) for one in groups)]
    return Chart(
        name="topology",
        title=f"Clusters by {' and '.join(keys)}",
        caption=_caption(keys, groups),
        figure=_bars(groups, states) if len(keys) == 1 else _matrix(keys, groups),
        columns=(*keys, "Clusters", *map(str.capitalize, states)),
        rows=tuple(_row(keys, one, states) for one in groups),
    )


def _row(keys: tuple[str, ...], group: Grouped, states: Sequence[str]) -> tuple[Cell, ...]:
    pairs = zip(keys, group.values, strict=True)
    names = (GroupName.of(key, value, value_words(value)) for key, value in pairs)
    return (*names, group.total, *(group.counts.get(state, 0) for state in states))


def value_words(value: str | None) -> str:
    """Write a value of a label: one that is absent, and one that is empty, are told apart."""
    return NO_LABEL if value is None else value or "(empty)"


def _caption(keys: tuple[str, ...], groups: Sequence[Grouped]) -> str:
    named = [one for one in groups if None not in one.values]
    total, lacking = sum(one.total for one in groups), sum(one.total for one in groups if None in one.values)
    words = f"{total:,} clusters in {len(named):,} groups by {' and '.join(keys)}"
    if named:
        smallest, largest = min(one.total for one in named), max(one.total for one in named)
        words += f", of {smallest:,} to {largest:,}" if smallest < largest else f", of {largest:,} each"
    lacking_words = f"; {lacking:,} lack {'the label' if len(keys) == 1 else 'a label'}" if lacking else ""
    return f"{words}{lacking_words}{_cut(keys, groups)}."


def _cut(keys: tuple[str, ...], groups: Sequence[Grouped]) -> str:
    most = MOST_BARS if len(keys) == 1 else MOST_SIDE
    sides = [len({one.values[place] for one in groups}) for place in range(len(keys))]
    cut = [
        f"{most:,} of {side:,} values of {key}" for key, side in zip(keys, sides, strict=True) if side > most
    ]
    return f". Drawn are {' and '.join(cut)}, the largest" if cut else ""


def _bars(groups: Sequence[Grouped], states: Sequence[str]) -> go.Figure:
    kept = _largest(groups, 0, MOST_BARS)
    shown = [one for one in groups if one.values[0] in kept]
    names = [value_words(one.values[0]) for one in shown]
    largest = max(one.total for one in shown)
    return figure(
        *(_bar(shown, names, state) for state in states),
        height=_BAR * len(shown) + _AROUND,
        barmode="stack",
        bargap=0.25,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 8, "r": 16, "t": 32, "b": 8},
        yaxis={"autorange": "reversed", "type": "category"},
        xaxis={"title": "clusters", "range": [0, largest * 1.04], **round_ticks(largest)},
    )


def _bar(groups: Sequence[Grouped], names: list[str], state: str) -> go.Bar:
    colour, hatch = STATES[state]
    return go.Bar(
        name=state,
        orientation="h",
        y=names,
        x=[one.counts.get(state, 0) for one in groups],
        marker=hatched(colour, hatch),
        hovertemplate=f"%{{y}}: %{{x}} {state}<extra></extra>",
    )


def _matrix(keys: tuple[str, ...], groups: Sequence[Grouped]) -> go.Figure:
    """Draw counts; where no cluster is, the cell stays empty."""
    down, across = ([*_largest(groups, place, MOST_SIDE)] for place in (0, 1))
    count = {one.values: one.total for one in groups}
    cells = [[count.get((row, column)) for column in across] for row in down]
    return figure(
        go.Heatmap(
            z=cells,
            x=[value_words(one) for one in across],
            y=[value_words(one) for one in down],
            colorscale=_COUNTS,
            zmin=0,
            zmax=max(count.values()),
            showscale=False,
            xgap=2,
            ygap=2,
            texttemplate="%{z:,d}",
            hovertemplate=f"{keys[0]} %{{y}}, {keys[1]} %{{x}}: %{{z:,d}} clusters<extra></extra>",
            hoverongaps=False,
        ),
        height=_CELL * len(down) + _AROUND,
        yaxis={
            "autorange": "reversed",
            "type": "category",
            "title": {"text": keys[0], "standoff": 16},
            "showgrid": False,
        },
        xaxis={
            "type": "category",
            "title": {"text": keys[1], "standoff": 8},
            "side": "top",
            "showgrid": False,
        },
        margin={"l": 16, "r": 16, "t": 48, "b": 8},
    )


def _largest(groups: Sequence[Grouped], place: int, most: int) -> dict[str | None, int]:
    """Give the largest values of one label in the order of the groups."""
    totals: dict[str | None, int] = {}
    for one in groups:
        totals[one.values[place]] = totals.get(one.values[place], 0) + one.total
    kept = set(sorted(totals, key=lambda value: -totals[value])[:most])
    ordered = sorted(kept, key=lambda value: (value is None, value or ""))
    return {value: totals[value] for value in ordered}
