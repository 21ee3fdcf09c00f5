"""C10, the fleet waffle: one cell for each cluster, in blocks by a label, coloured by how it stands."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from placements.explain.charts.chart import ON_OK, Chart, figure
from placements.explain.charts.topology import STATES, value_words

NAMED_UP_TO = 12
MOST_BLOCKS = 24
_SIGNS = {"eligible": "", "joining": "◔", "cordoned": "▲", "not eligible": "✗", "leaving": "‖"}
_LIGHT = {"eligible", "cordoned"}
_NAMED, _FEW, _MANY = (34, 6), (18, 24), (10, 72)
"""The height of a row in CSS pixels and the cells in it: with names, up to 600 clusters, beyond."""
_FEW_UP_TO = 600
OPENED_UP_TO = 200
"""So many clusters are opened each by its cell; of a larger fleet a cell leads to those that are like it."""
_AROUND = 24

Members = Sequence[tuple[str, str]]


class Block(NamedTuple):
    """Clusters that stand together: what they are called, and the filter that finds them, if one does."""

    words: str
    label: str | None
    members: Members


def waffle_chart(key: str, groups: Mapping[str | None, Members]) -> Chart | None:
    """Draw every cluster, given with its name and how it stands; None without clusters.

    The table counts the states of each group; of more than 24 groups the smallest share a block.
    """
    blocks = _blocks(key, groups)
    if not blocks:
        return None
    counts = {value: Counter(state for _, state in members) for value, members in groups.items()}
    states = [state for state in STATES if any(one[state] for one in counts.values())]
    return Chart(
        name="waffle",
        title=f"Fleet by {key}" if key else "Fleet",
        caption=_caption(key, counts, states),
        figure=_figure(blocks),
        columns=(key or "Group", "Clusters", *map(str.capitalize, states)),
        rows=tuple(
            (value_words(value), one.total(), *(one[state] for state in states))
            for value, one in counts.items()
        ),
    )


def label_filter(key: str, value: str | None) -> str:
    """Write as a filter of a list of clusters which of them a group has; empty without a label to go by."""
    if not key:
        return ""
    return f"!{key}" if value is None else f"{key}:{value}"


def state_filter(state: str) -> str:
    """Write as a filter of a list of clusters how they stand."""
    return state.replace(" ", "-")


def _blocks(key: str, groups: Mapping[str | None, Members]) -> list[Block]:
    kept = set(groups)
    if len(groups) > MOST_BLOCKS:
        kept = set(sorted(groups, key=lambda value: -len(groups[value]))[: MOST_BLOCKS - 1])
    others = [one for value, members in groups.items() if value not in kept for one in members]
    shown = [
        Block(value_words(value), label_filter(key, value), members)
        for value, members in groups.items()
        if value in kept
    ]
    return [*shown, Block(f"{len(groups) - len(kept):,} smaller groups", None, others)] if others else shown


def _caption(key: str, counts: Mapping[str | None, Counter[str]], states: Sequence[str]) -> str:
    in_all: Counter[str] = sum(counts.values(), Counter())
    by = f" in {len(counts):,} groups by {key}" if key else ""
    told = ", ".join(f"{in_all[state]:,} {state} {_SIGNS[state]}".rstrip() for state in states)
    return f"{in_all.total():,} clusters{by}: {told}."


def _figure(blocks: Sequence[Block]) -> go.Figure:
    total = sum(len(one.members) for one in blocks)
    is_named = total <= NAMED_UP_TO
    height, width = _NAMED if is_named else _FEW if total <= _FEW_UP_TO else _MANY
    width = min(width, max(len(one.members) for one in blocks))
    rows, ticks, labels = _rows(blocks, width, apart=not is_named)
    places = {state: place for place, state in enumerate(STATES)}
    return figure(
        go.Heatmap(
            z=_each(rows, lambda cell: places[cell[1]], none=None),
            text=_each(rows, lambda cell: _text(cell, is_named=is_named)),
            hovertext=_each(rows, lambda cell: f"{cell[0]}: {cell[1]}"),
            customdata=_each(rows, itemgetter(0)) if total <= OPENED_UP_TO else None,
            meta={"y": labels, "z": [state_filter(state) for state in STATES]},
            colorscale=_scale(),
            zmin=-0.5,
            zmax=len(STATES) - 0.5,
            showscale=False,
            xgap=3 if is_named else 1,
            ygap=3 if is_named else 1,
            texttemplate="%{text}",
            textfont=_font(blocks),
            hovertemplate="%{hovertext}<extra></extra>",
            hoverongaps=False,
        ),
        height=height * len(rows) + _AROUND,
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


def _font(blocks: Sequence[Block]) -> dict[str, str]:
    """Write dark where every cell is of a light colour; else Plotly chooses for each."""
    states = {state for block in blocks for _, state in block.members}
    return {"color": ON_OK} if states <= _LIGHT else {}


Cell = tuple[str, str]
Cells = list[list[Cell | None]]


def _each(rows: Cells, tell: Callable[[Cell], object], *, none: object = "") -> npt.NDArray[np.object_]:
    """Tell something of each cell. Plotly takes an array as it is; it would go through lists one by one."""
    return np.array([[none if cell is None else tell(cell) for cell in row] for row in rows], dtype=object)


def _rows(
    blocks: Sequence[Block], width: int, *, apart: bool
) -> tuple[Cells, list[tuple[int, str]], list[str | None]]:
    """Lay the blocks out, one below the other: cells, the name of each at its first row, filters by row."""
    rows: Cells = []
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


def _text(cell: Cell, *, is_named: bool) -> str:
    sign = _SIGNS[cell[1]]
    return f"{sign} {cell[0]}".strip() if is_named else sign


def _scale() -> list[list[object]]:
    """Give a scale of steps, so that each state has exactly its colour."""
    size = len(STATES)
    return [
        [edge / size, colour]
        for place, (colour, _) in enumerate(STATES.values())
        for edge in (place, place + 1)
    ]
