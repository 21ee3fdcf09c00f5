"""Charts of the fleet: bars for one label, a matrix for two, and a waffle with a cell for each cluster."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from fleetui.apimachinery.quantity import quantity_words
from placements.explain.charts.figure import Cell, Chart, Color, GroupName, figure, heatmap, stacked_bars

MOST_BARS, MOST_SIDE = 40, 40


class _State(NamedTuple):
    """How a state of a cluster is drawn, and its word on pages."""

    color: str
    hatch: str
    sign: str
    words: str


STATES = {
    "ready": _State(Color.HEALTHY, "", "", "ready"),
    "not monitored": _State(Color.UNKNOWN, "", "○", "not monitored"),
    "joining": _State(Color.PROGRESS, ".", "◔", "joining"),
    "cordoned": _State(Color.ATTENTION, "/", "▲", "cordoned"),
    "workloads failing": _State(Color.ATTENTION, "x", "≠", "workloads failing"),
    "unhealthy": _State(Color.ATTENTION, "+", "!", "unhealthy"),
    "heartbeat late": _State(Color.ATTENTION, "\\", "◷", "heartbeat late"),
    "not observed": _State(Color.UNKNOWN, "\\", "?", "not observed"),
    "not eligible": _State(Color.FAILED, "x", "✗", "not ready"),
    "leaving": _State(Color.PROGRESS, "-", "←", "leaving"),
}


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
    totals = [one.total for one in groups if None not in one.values]
    total, without = sum(one.total for one in groups), sum(one.total for one in groups if None in one.values)
    words = f"{total:,} clusters in {len(totals):,} domains by {' and '.join(keys)}"
    if totals:
        smallest, largest = min(totals), max(totals)
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

    if len(keys) == 1:
        [values] = _largest(groups, keys, most)
        bars = [one for one in groups if one.values[0] in values]
        chart = stacked_bars(
            [value_words(one.values[0]) for one in bars],
            [
                (STATES[state].words, *STATES[state][:2], [one.counts.get(state, 0) for one in bars])
                for state in states
            ],
            height=26 * len(bars) + 72,
            bargap=0.25,
        )
    else:
        chart = _matrix(keys, groups)
    rows: list[tuple[Cell, ...]] = []
    for one in groups:
        pairs = zip(keys, one.values, strict=True)
        names = (GroupName.of(key, value, value_words(value)) for key, value in pairs)
        rows.append((*names, one.total, *(one.counts.get(state, 0) for state in states)))
    return Chart(
        name="topology",
        title=f"Clusters by {' and '.join(keys)}",
        caption=f"{words}.",
        figure=chart,
        columns=(*keys, "Clusters", *(STATES[state].words.capitalize() for state in states)),
        rows=tuple(rows),
    )


def value_words(value: str | None) -> str:
    """Return a value of a label; one that is absent and one that is empty differ."""
    return "no label" if value is None else value or "(empty)"


def _matrix(keys: tuple[str, ...], groups: Sequence[Grouped]) -> go.Figure:
    down, across = _largest(groups, keys, MOST_SIDE)
    count = {one.values: one.total for one in groups}
    cells = heatmap(
        [[count.get((row, column)) for column in across] for row in down],
        x=[value_words(one) for one in across],
        y=[value_words(one) for one in down],
        colorscale=[[step / 3, f"var(--ramp-{step + 4})"] for step in range(4)],
        zmin=0,
        zmax=max(count.values()),
        texttemplate="%{z:,d}",
        hovertemplate=f"{keys[0]} %{{y}}, {keys[1]} %{{x}}: %{{z:,d}} clusters<extra></extra>",
    )
    names, values = (
        {"type": "category", "title": {"text": key, "standoff": standoff}, "showgrid": False}
        for key, standoff in zip(keys, (16, 8), strict=True)
    )
    return figure(
        cells,
        height=28 * len(down) + 72,
        yaxis={"autorange": "reversed", **names},
        xaxis={"side": "top", **values},
        margin={"l": 16, "r": 16, "t": 48, "b": 8},
    )


def _largest(groups: Sequence[Grouped], keys: Sequence[str], most: int) -> list[list[str | None]]:
    """Return the values of each label that most clusters have, in order; no label comes last."""
    by_label = []
    for place in range(len(keys)):
        totals: Counter[str | None] = Counter()
        for one in groups:
            totals[one.values[place]] += one.total
        kept = [value for value, _ in totals.most_common(most)]
        by_label.append(sorted(kept, key=lambda value: (value is None, value or "")))
    return by_label


NAMED_UP_TO = 12
MOST_BLOCKS = 24
OPENED_UP_TO = 200
"""Up to this number each cell opens its cluster; of a larger fleet a cell leads to those that are like it."""

Members = Sequence[tuple[str, str]]


class Measure(NamedTuple):
    """A number of each cluster that colors its cell; clusters without one are left out."""

    name: str
    values: Mapping[str, float]

    def row(self, members: Members) -> tuple[Cell, ...]:
        """Return mean, lowest and highest value of these clusters; None where none has a value."""
        values = [self.values[name] for name, _ in members if name in self.values]
        if not values:
            return (None, None, None)
        rounded = (round(one, 2) for one in (sum(values) / len(values), min(values), max(values)))
        return tuple(int(one) if one.is_integer() else one for one in rounded)


_Block = tuple[str, str | None, Members]
"""A name, the filter of the list of clusters that selects the members, if any, and the members."""


def waffle_chart(
    key: str, groups: Mapping[str | None, Members], measure: Measure | None = None
) -> Chart | None:
    """Draw every cluster with its name and state; None without clusters.

    The table counts the states of each domain, or has the values of a measure; of more than 24 domains the
    smallest share a block.
    """
    kept = set(groups)
    if len(groups) > MOST_BLOCKS:
        kept = set(sorted(groups, key=lambda value: -len(groups[value]))[: MOST_BLOCKS - 1])
    blocks: list[_Block] = [
        (value_words(value), label_filter(key, value), members)
        for value, members in groups.items()
        if value in kept
    ]
    others = [one for value, members in groups.items() if value not in kept for one in members]
    if others:
        blocks.append((f"{len(groups) - len(kept):,} smaller domains", None, others))
    if not blocks:
        return None
    counts = {value: Counter(state for _, state in members) for value, members in groups.items()}
    total: Counter[str] = sum(counts.values(), Counter())
    states = {state: drawn for state, drawn in STATES.items() if total[state]}
    by = f" in {len(counts):,} domains by {key}" if key else ""
    parts = ", ".join(f"{total[state]:,} {one.words} {one.sign}".rstrip() for state, one in states.items())
    if measure:
        numbers = measure.row([one for members in groups.values() for one in members])
        words = [quantity_words(one, measure.name) for one in numbers if one is not None]
        spread = "{1} to {2}, mean {0}".format(*words) if words else "no values"
        return Chart(
            name="waffle",
            title=f"Fleet by {key}: {measure.name}" if key else f"Fleet: {measure.name}",
            caption=f"{total.total():,} clusters{by}. {measure.name}: {spread}; stronger colors are higher.",
            figure=_waffle_figure(blocks, measure),
            columns=(key or "Domain", "Clusters", "Mean", "Lowest", "Highest"),
            rows=tuple(
                (value_words(value), len(members), *measure.row(members)) for value, members in groups.items()
            ),
        )
    return Chart(
        name="waffle",
        title=f"Fleet by {key}" if key else "Fleet",
        caption=f"{total.total():,} clusters{by}: {parts}.",
        figure=_waffle_figure(blocks),
        columns=(key or "Domain", "Clusters", *(one.words.capitalize() for one in states.values())),
        rows=tuple(
            (value_words(value), one.total(), *(one[state] for state in states))
            for value, one in counts.items()
        ),
    )


def label_filter(key: str, value: str | None) -> str:
    if not key:
        return ""
    return f"!{key}" if value is None else f"{key}:{value}"


def state_filter(state: str) -> str:
    return state.replace(" ", "-")


def _waffle_figure(blocks: Sequence[_Block], measure: Measure | None = None) -> go.Figure:
    total = sum(len(members) for *_, members in blocks)
    is_named = total <= NAMED_UP_TO
    # The height of a row in CSS pixels and the cells in it.
    height, width = (34, 6) if is_named else (18, 24) if total <= 600 else (10, 72)
    width = min(width, max(len(members) for *_, members in blocks))
    # The blocks one below the other: cells, the name of each block at its first row, filters by row.
    rows: list[list[tuple[str, str] | None]] = []
    ticks: dict[int, str] = {}
    labels: list[str | None] = []
    for words, label, members in blocks:
        if rows and not is_named:
            rows.append([None] * width)
        ticks[len(rows)] = f"{words}  {len(members):,}"
        for start in range(0, len(members), width):
            cells = members[start : start + width]
            rows.append([*cells, *[None] * (width - len(cells))])
        labels += [label] * (len(rows) - len(labels))

    def each(of: Callable[[tuple[str, str]], object], none: object = "") -> npt.NDArray[np.object_]:
        # Plotly takes an array as it is; it would check lists one by one.
        return np.array([[none if cell is None else of(cell) for cell in row] for row in rows], dtype=object)

    if measure:
        values, name = measure.values, measure.name
        trace: dict[str, Any] = {
            "z": each(lambda cell: values.get(cell[0]), none=None),
            "text": each(lambda cell: cell[0] if is_named else ""),
            "hovertext": each(lambda cell: f"{cell[0]}: {name} {values.get(cell[0], 'none')}"),
            "colorscale": [[step / 3, f"var(--ramp-{step + 4})"] for step in range(4)],
        }
    else:
        trace = _state_cells(each, blocks, is_named=is_named)
    return figure(
        heatmap(
            trace.pop("z"),
            gap=3 if is_named else 1,
            customdata=each(itemgetter(0)) if total <= OPENED_UP_TO else None,
            meta={"y": labels, "z": [state_filter(state) for state in STATES]},
            texttemplate="%{text}",
            hovertemplate="%{hovertext}<extra></extra>",
            **trace,
        ),
        height=height * len(rows) + 24,
        xaxis={"visible": False},
        yaxis={
            "autorange": "reversed",
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
            "showgrid": False,
            "zeroline": False,
            "showline": False,
            "ticks": "",
            "ticklabelstandoff": 4,
        },
    )


_Each = Callable[..., npt.NDArray[np.object_]]


def _state_cells(each: _Each, blocks: Sequence[_Block], *, is_named: bool) -> dict[str, Any]:
    places = {state: place for place, state in enumerate(STATES)}
    signs = {state: one.sign for state, one in STATES.items()}
    # Where the states differ, Plotly chooses the color of the text for each cell.
    is_ready = {state for *_, members in blocks for _, state in members} <= {"ready"}
    return {
        "z": each(lambda cell: places[cell[1]], none=None),
        "text": each(lambda cell: f"{signs[cell[1]]} {cell[0]}".strip() if is_named else signs[cell[1]]),
        "hovertext": each(lambda cell: f"{cell[0]}: {STATES[cell[1]].words}"),
        # A scale of steps, so that each state has exactly its color.
        "colorscale": [
            [edge / len(STATES), one.color]
            for place, one in enumerate(STATES.values())
            for edge in (place, place + 1)
        ],
        "zmin": -0.5,
        "zmax": len(STATES) - 0.5,
        "textfont": {"color": Color.ON_HEALTHY} if is_ready else {},
    }
