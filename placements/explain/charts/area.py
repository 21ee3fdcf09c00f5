"""C8, the rollout against its safety lines: inside the budget, and how fast?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import plotly.graph_objects as go

from placements.explain.charts.chart import (
    ATTENTION,
    FAILED,
    NEUTRAL,
    OK,
    PAGE,
    TEXT,
    Chart,
    figure,
    whole_ticks,
)
from placements.explain.charts.elapsed import SHORTEST, clock_words, elapsed_axis, seconds_between
from placements.rollout.tally import Tally

MOST_POINTS = 400
_TAIL = 0.06
"""How much further the last state is drawn, as a part of the time before: a run ends with its last change."""
_COLUMNS = (
    "Elapsed",
    "Old, available",
    "New, available",
    "Not available",
    "Being removed",
    "N",
    "Floor",
    "Ceiling",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """How the clusters of a run stood from one moment on."""

    at: datetime
    tally: Tally


def area_chart(
    moments: Sequence[Moment], *, since: datetime, until: datetime, is_in_place: bool, is_deletion: bool
) -> Chart | None:
    """Draw how many clusters stood how, from moment to moment, against the lines; None before the first.

    A run that only updates in place has no line above: it adds nothing. A deletion has no lines at all. Of
    more than 400 moments those are drawn that hold the least available and the last of each stretch.
    """
    if not moments:
        return None
    drawn = _thinned(moments)
    rows = [(seconds_between(since, one.at), one.tally) for one in drawn]
    end = max(seconds_between(since, until), rows[-1][0] * (1 + _TAIL), SHORTEST)
    return Chart(
        name="area",
        title="Clusters against the safety lines",
        caption=_caption(moments, is_in_place=is_in_place, is_deletion=is_deletion),
        figure=_figure(rows, end, _lines(moments[-1].tally, is_in_place, is_deletion)),
        columns=_COLUMNS,
        rows=tuple(
            (
                clock_words(at),
                one.old,
                one.new,
                one.unavailable,
                one.removing,
                one.number,
                one.floor,
                one.ceiling,
            )
            for at, one in rows
        ),
    )


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Keep of each stretch the moment with the least available and the last: no dip is smoothed away."""
    if len(moments) <= MOST_POINTS:
        return list(moments)
    stretch = -(-2 * len(moments) // MOST_POINTS)
    kept: list[Moment] = []
    for start in range(0, len(moments), stretch):
        part = moments[start : start + stretch]
        lowest = min(range(len(part)), key=lambda place: part[place].tally.available)
        kept += [part[place] for place in sorted({lowest, len(part) - 1})]
    return kept


def _caption(moments: Sequence[Moment], *, is_in_place: bool, is_deletion: bool) -> str:
    last = moments[-1].tally
    if is_deletion:
        return f"{last.placed} clusters still hold something of the placement."
    most = max(one.tally.placed for one in moments)
    above = (
        "Nothing is added, so there is no ceiling."
        if is_in_place
        else f"At most {most:,} placed at once, the ceiling is {last.ceiling:,}."
    )
    return f"{last.available:,} of {last.number:,} available now. {_margin(moments)} {above}"


def _margin(moments: Sequence[Moment]) -> str:
    """Say how near the floor it came, once as many as that were available at all."""
    floor = moments[-1].tally.floor
    spare = [one.tally.available - one.tally.floor for one in moments]
    reached = next((place for place, above in enumerate(spare) if above >= 0), None)
    if reached is None:
        return f"The floor of {floor:,} is not reached yet; only taking down is held to it."
    lowest = min(spare[reached:])
    if lowest < 0:
        return f"At the lowest {-lowest:,} below the floor of {floor:,}: clusters failed or fell silent."
    return (
        f"Never fewer than {lowest:,} above the floor of {floor:,}."
        if lowest
        else f"The floor of {floor:,} held."
    )


def _lines(last: Tally, is_in_place: bool, is_deletion: bool) -> list[tuple[str, int, str]]:
    if is_deletion:
        return []
    ceiling = [] if is_in_place else [(f"N + maxSurge = {last.ceiling:,}", last.ceiling, "dash")]
    return [
        *ceiling,
        (f"N = {last.number:,}", last.number, "solid"),
        (f"N − maxUnavailable = {last.floor:,}", last.floor, "dash"),
    ]


_BANDS: tuple[tuple[str, str, str, str], ...] = (
    ("old, available", "old", NEUTRAL, "/"),
    ("new, available", "new", OK, ""),
    ("not available", "unavailable", ATTENTION, "."),
    ("being removed", "removing", FAILED, "x"),
)


def _figure(
    rows: Sequence[tuple[float, Tally]], end: float, lines: Sequence[tuple[str, int, str]]
) -> go.Figure:
    top = max([tally.placed for _, tally in rows] + [level for _, level, _ in lines])
    return figure(
        *(_band(rows, end, *band) for band in _BANDS if any(getattr(one, band[1]) for _, one in rows)),
        height=320,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=elapsed_axis(end),
        yaxis={"range": [0, top * 1.08 or 1], "title": "clusters", **whole_ticks(top)},
        shapes=[_shape(level, dash) for _, level, dash in lines],
        annotations=[_label(words, level) for words, level, _ in lines],
        margin={"l": 8, "r": 16, "t": 48, "b": 8},
    )


def _band(
    rows: Sequence[tuple[float, Tally]], end: float, name: str, part: str, color: str, hatch: str
) -> go.Scatter:
    counts = [getattr(tally, part) for _, tally in rows]
    return go.Scatter(
        x=[*(at for at, _ in rows), max(end, rows[-1][0])],
        y=[*counts, counts[-1]],
        name=name,
        mode="lines",
        line={"shape": "hv", "width": 0.5, "color": color},
        stackgroup="clusters",
        fillcolor=color,
        fillpattern={"shape": hatch, "fillmode": "replace", "fgcolor": color} if hatch else None,
        hovertemplate=f"%{{y}} {name}<extra></extra>",
    )


def _shape(level: int, dash: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": level,
        "y1": level,
        "line": {"color": TEXT, "dash": dash, "width": 2},
    }


def _label(words: str, level: int) -> dict[str, Any]:
    return {
        "text": words,
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "y": level,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": TEXT, "size": 11},
        "bgcolor": PAGE,
        "borderpad": 2,
        "yshift": 2,
    }
