"""C10, the fleet waffle: one cell for each cluster, in blocks by a label, coloured by how it stands."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from placements.explain.charts.chart import Chart, figure
from placements.explain.charts.topology import STATES, value_words

NAMED_UP_TO = 12
MOST_BLOCKS = 24
_SIGNS = {"eligible": "", "joining": "◔", "cordoned": "▲", "not eligible": "✗", "leaving": "‖"}
_NAMED, _FEW, _MANY = (34, 6), (18, 24), (10, 72)
"""The height of a row in CSS pixels and the cells in it: with names, up to 600 clusters, beyond."""
_FEW_UP_TO = 600
_AROUND = 24

Members = Sequence[tuple[str, str]]
Block = tuple[str, Members]


def waffle_chart(key: str, groups: Mapping[str | None, Members]) -> Chart | None:
    """Draw every cluster, given with its name and how it stands; None without clusters.

    The table counts the states of each group; of more than 24 groups the smallest share a block.
    """
    blocks = _blocks(groups)
    if not blocks:
        return None
    states = [state for state in STATES if any(one == state for _, members in blocks for _, one in members)]
    return Chart(
        name="waffle",
        title=f"Fleet by {key}" if key else "Fleet",
        caption=_caption(key, groups, states),
        figure=_figure(blocks),
        columns=(key or "Group", "Clusters", *map(str.capitalize, states)),
        rows=tuple(
            (value_words(value), len(members), *(_count(members, state) for state in states))
            for value, members in groups.items()
        ),
    )


def _count(members: Members, state: str) -> int:
    return sum(one == state for _, one in members)


def _blocks(groups: Mapping[str | None, Members]) -> list[Block]:
    if len(groups) <= MOST_BLOCKS:
        return [(value_words(value), members) for value, members in groups.items()]
    kept = set(sorted(groups, key=lambda value: -len(groups[value]))[: MOST_BLOCKS - 1])
    others = [one for value, members in groups.items() if value not in kept for one in members]
    shown = [(value_words(value), members) for value, members in groups.items() if value in kept]
    return [*shown, (f"{len(groups) - len(kept):,} smaller groups", others)]


def _caption(key: str, groups: Mapping[str | None, Members], states: Sequence[str]) -> str:
    total = sum(map(len, groups.values()))
    counts = [f"{sum(_count(members, state) for members in groups.values()):,} {state}" for state in states]
    by = f" in {len(groups):,} groups by {key}" if key else ""
    return f"{total:,} clusters{by}: {', '.join(counts)}."


def _figure(blocks: Sequence[Block]) -> go.Figure:
    total = sum(len(members) for _, members in blocks)
    is_named = total <= NAMED_UP_TO
    height, width = _NAMED if is_named else _FEW if total <= _FEW_UP_TO else _MANY
    width = min(width, max(len(members) for _, members in blocks))
    rows, ticks = _rows(blocks, width, apart=not is_named)
    return figure(
        go.Heatmap(
            z=[[None if cell is None else list(STATES).index(cell[1]) for cell in row] for row in rows],
            text=[[_text(cell, is_named=is_named) for cell in row] for row in rows],
            customdata=[[_told(cell) for cell in row] for row in rows],
            colorscale=_scale(),
            zmin=-0.5,
            zmax=len(STATES) - 0.5,
            showscale=False,
            xgap=3 if is_named else 1,
            ygap=3 if is_named else 1,
            texttemplate="%{text}",
            hovertemplate="%{customdata}<extra></extra>",
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
        },
    )


Cells = list[list[tuple[str, str] | None]]


def _rows(blocks: Sequence[Block], width: int, *, apart: bool) -> tuple[Cells, list[tuple[int, str]]]:
    """Lay the blocks out, one below the other; the name of each stands at its first row."""
    rows: Cells = []
    ticks = []
    for words, members in blocks:
        if rows and apart:
            rows.append([None] * width)
        ticks.append((len(rows), f"{words}  {len(members):,}"))
        for start in range(0, len(members), width):
            cells = list(members[start : start + width])
            rows.append([*cells, *[None] * (width - len(cells))])
    return rows, ticks


def _text(cell: tuple[str, str] | None, *, is_named: bool) -> str:
    if cell is None:
        return ""
    sign = _SIGNS[cell[1]]
    return f"{sign} {cell[0]}".strip() if is_named else sign


def _told(cell: tuple[str, str] | None) -> str:
    return "" if cell is None else f"{cell[0]}: {cell[1]}"


def _scale() -> list[list[object]]:
    """Give a scale of steps, so that each state has exactly its colour."""
    size = len(STATES)
    return [
        [edge / size, colour]
        for place, (colour, _) in enumerate(STATES.values())
        for edge in (place, place + 1)
    ]
