"""Charts of the fleet: bars for one label, a matrix for two, and a waffle with a cell for each cluster."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from placements.explain.charts.figure import (
    ATTENTION,
    BLOCKED,
    FAILED,
    LEGEND_ABOVE,
    NEUTRAL,
    OK,
    ON_OK,
    Cell,
    Chart,
    GroupName,
    figure,
    hatched,
    round_ticks,
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
"""Colour and hatch of each state of a cluster."""
STATE_WORDS = {"eligible": "ready", "not eligible": "not ready"}
"""States that people read in another word."""
_COUNTS = [[step / 3, f"var(--ramp-{step + 4})"] for step in range(4)]
_BAR, _CELL, _AROUND = 26, 28, 72


@dataclass(frozen=True, slots=True)
class Grouped:
    """One domain: its values, None where clusters have no such label, and its clusters by state."""

    values: tuple[str | None, ...]
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def topology_chart(keys: tuple[str, ...], groups: Sequence[Grouped]) -> Chart | None:
    """Draw the domains of one label or two; None without clusters."""
    if not groups:
        return None
    states = [state for state in STATES if any(one.counts.get(state) for one in groups)]
    named = [one.total for one in groups if None not in one.values]
    total, without = sum(one.total for one in groups), sum(one.total for one in groups if None in one.values)
    words = f"{total:,} clusters in {len(named):,} domains by {' and '.join(keys)}"
    if named:
        smallest, largest = min(named), max(named)
        words += f", {smallest:,} to {largest:,} each" if smallest < largest else f", {largest:,} each"
    if without:
        words += f"; {without:,} without {'the label' if len(keys) == 1 else 'a label'}"
    most = MOST_BARS if len(keys) == 1 else MOST_SIDE
    sides = [len({one.values[place] for one in groups}) for place in range(len(keys))]
    cut = [
        f"{most:,} of {side:,} values of {key}" for key, side in zip(keys, sides, strict=True) if side > most
    ]
    if cut:
        words += f". Shown: the largest {' and '.join(cut)}"

    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        pairs = zip(keys, one.values, strict=True)
        names = (GroupName.of(key, value, value_words(value)) for key, value in pairs)
        rows.append((*names, one.total, *(one.counts.get(state, 0) for state in states)))
    return Chart(
        name="topology",
        title=f"Clusters by {' and '.join(keys)}",
        caption=f"{words}.",
        figure=_bars(groups, states) if len(keys) == 1 else _matrix(keys, groups),
        columns=(*keys, "Clusters", *(state_words(state).capitalize() for state in states)),
        rows=tuple(rows),
    )


def value_words(value: str | None) -> str:
    """Return a value of a label; one that is absent and one that is empty differ."""
    return NO_LABEL if value is None else value or "(empty)"


def state_words(state: str) -> str:
    return STATE_WORDS.get(state, state)


def _bars(groups: Sequence[Grouped], states: Sequence[str]) -> go.Figure:
    kept = _largest(groups, 0, MOST_BARS)
    shown = [one for one in groups if one.values[0] in kept]
    names = [value_words(one.values[0]) for one in shown]
    largest = max(one.total for one in shown)
    traces = [
        go.Bar(
            name=state_words(state),
            orientation="h",
            y=names,
            x=[one.counts.get(state, 0) for one in shown],
            marker=hatched(*STATES[state]),
            hovertemplate=f"%{{y}}: %{{x}} {state_words(state)}<extra></extra>",
        )
        for state in states
    ]
    return figure(
        *traces,
        height=_BAR * len(shown) + _AROUND,
        barmode="stack",
        bargap=0.25,
        yaxis={"autorange": "reversed", "type": "category"},
        xaxis={"title": "clusters", "range": [0, largest * 1.04], **round_ticks(largest)},
        **LEGEND_ABOVE,
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
    """Return the largest values of one label in the order of the domains."""
    totals: dict[str | None, int] = {}
    for one in groups:
        totals[one.values[place]] = totals.get(one.values[place], 0) + one.total
    kept = set(sorted(totals, key=lambda value: -totals[value])[:most])
    ordered = sorted(kept, key=lambda value: (value is None, value or ""))
    return {value: totals[value] for value in ordered}


NAMED_UP_TO = 12
MOST_BLOCKS = 24
_SIGNS = {"eligible": "", "joining": "◔", "cordoned": "▲", "not eligible": "✗", "leaving": "‖"}
_LIGHT = {"eligible", "cordoned"}
_NAMED, _FEW, _MANY = (34, 6), (18, 24), (10, 72)
"""The height of a row in CSS pixels and the cells in it: with names, up to 600 clusters, beyond."""
_FEW_UP_TO = 600
OPENED_UP_TO = 200
"""So many clusters are opened each by its cell; of a larger fleet a cell leads to those that are like it."""
_AROUND_WAFFLE = 24

Members = Sequence[tuple[str, str]]


class WaffleBlock(NamedTuple):
    """Clusters of one block: its name, and the filter of the list of clusters that selects them, if any."""

    words: str
    label: str | None
    members: Members


def waffle_chart(key: str, groups: Mapping[str | None, Members]) -> Chart | None:
    """Draw every cluster, given with its name and state; None without clusters.

    The table counts the states of each domain; of more than 24 domains the smallest share a block.
    """
    kept = set(groups)
    if len(groups) > MOST_BLOCKS:
        kept = set(sorted(groups, key=lambda value: -len(groups[value]))[: MOST_BLOCKS - 1])
    others = [one for value, members in groups.items() if value not in kept for one in members]
    shown = [
        WaffleBlock(value_words(value), label_filter(key, value), members)
        for value, members in groups.items()
        if value in kept
    ]
    blocks = (
        [*shown, WaffleBlock(f"{len(groups) - len(kept):,} smaller domains", None, others)]
        if others
        else shown
    )
    if not blocks:
        return None
    counts = {value: Counter(state for _, state in members) for value, members in groups.items()}
    states = [state for state in STATES if any(one[state] for one in counts.values())]
    total: Counter[str] = sum(counts.values(), Counter())
    by = f" in {len(counts):,} domains by {key}" if key else ""
    parts = ", ".join(f"{total[state]:,} {state_words(state)} {_SIGNS[state]}".rstrip() for state in states)
    return Chart(
        name="waffle",
        title=f"Fleet by {key}" if key else "Fleet",
        caption=f"{total.total():,} clusters{by}: {parts}.",
        figure=_figure(blocks),
        columns=(key or "Domain", "Clusters", *(state_words(one).capitalize() for one in states)),
        rows=tuple(
            (value_words(value), one.total(), *(one[state] for state in states))
            for value, one in counts.items()
        ),
    )


def label_filter(key: str, value: str | None) -> str:
    """Return the filter of the list of clusters for a domain; empty without a label."""
    if not key:
        return ""
    return f"!{key}" if value is None else f"{key}:{value}"


def state_filter(state: str) -> str:
    """Return the filter of the list of clusters for a state."""
    return state.replace(" ", "-")


def _figure(blocks: Sequence[WaffleBlock]) -> go.Figure:
    total = sum(len(one.members) for one in blocks)
    is_named = total <= NAMED_UP_TO
    height, width = _NAMED if is_named else _FEW if total <= _FEW_UP_TO else _MANY
    width = min(width, max(len(one.members) for one in blocks))
    rows, ticks, labels = _rows(blocks, width, apart=not is_named)
    places = {state: place for place, state in enumerate(STATES)}
    # Dark text where every cell is of a light colour; else Plotly chooses for each.
    states = {state for block in blocks for _, state in block.members}
    # A scale of steps, so that each state has exactly its colour.
    scale = [
        [edge / len(STATES), colour]
        for place, (colour, _) in enumerate(STATES.values())
        for edge in (place, place + 1)
    ]

    def text(cell: _ClusterCell) -> str:
        sign = _SIGNS[cell[1]]
        return f"{sign} {cell[0]}".strip() if is_named else sign

    return figure(
        go.Heatmap(
            z=_each(rows, lambda cell: places[cell[1]], none=None),
            text=_each(rows, text),
            hovertext=_each(rows, lambda cell: f"{cell[0]}: {state_words(cell[1])}"),
            customdata=_each(rows, itemgetter(0)) if total <= OPENED_UP_TO else None,
            meta={"y": labels, "z": [state_filter(state) for state in STATES]},
            colorscale=scale,
            zmin=-0.5,
            zmax=len(STATES) - 0.5,
            showscale=False,
            xgap=3 if is_named else 1,
            ygap=3 if is_named else 1,
            texttemplate="%{text}",
            textfont={"color": ON_OK} if states <= _LIGHT else {},
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
        ),
        height=height * len(rows) + _AROUND_WAFFLE,
        xaxis={"visible": False},
        yaxis={
            "autorange": "reversed",
            "tickvals": [place for place, _ in ticks],
            "ticktext": [words for _, words in ticks],
            "showgrid": False,
            "zeroline": False,
            "showline": False,
            "ticks": "",
            "ticklabelstandoff": 4,
        },
    )


_ClusterCell = tuple[str, str]
_Rows = list[list[_ClusterCell | None]]


def _each(
    rows: _Rows, tell: Callable[[_ClusterCell], object], *, none: object = ""
) -> npt.NDArray[np.object_]:
    """Apply a function to each cell. Plotly takes an array as it is; it would check lists one by one."""
    return np.array([[none if cell is None else tell(cell) for cell in row] for row in rows], dtype=object)


def _rows(
    blocks: Sequence[WaffleBlock], width: int, *, apart: bool
) -> tuple[_Rows, list[tuple[int, str]], list[str | None]]:
    """Return the blocks one below the other: cells, the name of each at its first row, filters by row."""
    rows: _Rows = []
    ticks = []
    labels: list[str | None] = []
    for words, label, members in blocks:
        if rows and apart:
            rows.append([None] * width)
        ticks.append((len(rows), f"{words}  {len(members):,}"))
        for start in range(0, len(members), width):
            cells = list(members[start : start + width])
            rows.append([*cells, *[None] * (width - len(cells))])
        labels += [label] * (len(rows) - len(labels))
    return rows, ticks, labels
