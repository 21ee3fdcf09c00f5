"""The chart of a rollout or staged run: Plotly's drawing of its picture."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from placements.explain.charts.figure import (
    Color,
    figure,
)
from placements.explain.run_pictures import BAR_ROWS, RunColumn, RunPicture

_SYMBOLS = {
    "healthy": ("circle", Color.WELL),
    "progress": ("circle-open", Color.PROGRESS),  # with a wedge
    "attention": ("triangle-up", Color.ATTENTION),
    "failed": ("x", Color.FAILED),
    "unknown": ("diamond-open", Color.UNKNOWN),
    "pending": ("circle-open", Color.QUIET),
}
_FILLS = {Color.QUIET: Color.CLEAR, Color.UNKNOWN: Color.CLEAR}
"""The insides of bars that are not filled with their color."""
_AREAS = (
    ("new", "updated", Color.WELL, Color.CALM),
    ("old", "not updated", Color.BAND, Color.HOVER),
)
"""The areas of a revision: its part of a point, its words, its color, and that of what is planned."""
_AREA_KEY = "".join(
    f"<span style='color:{color};font-size:16px'>■</span> {words} "
    for _, words, color, _ in reversed(_AREAS)
)
_HEAD, _NAMES, _DOT_ROW, _NAMED_ROW, _LINE, _TIMES = 40, 28, 26, 32, 136, 24
"""Heights in pixels: heads of columns, names of trouble, rows of dots, the line, its times."""
_WEDGE = {
    "type": "path",
    "path": "M0,0V7C3.9,7 7,3.9 7,0Z",
    "xref": "x",
    "yref": "y2",
    "xsizemode": "pixel",
    "ysizemode": "pixel",
    "fillcolor": Color.PROGRESS,
    "line": {"width": 0},
}
_LEAST_BAR = 18 / _DOT_ROW
"""The least height of a part of a bar in rows, with room for its number."""
_BELOW_WORDS = 0.86  # of the height of the line: its heading is above
_USUAL_WIDTH = 1000
"""The width of the columns in pixels, for the distance of two dots."""
_LEFT = 60
_NAMED_START = 0.12  # of the width of a column: where its clusters with names start
_HIDDEN = {
    "showgrid": False,
    "zeroline": False,
    "showticklabels": False,
    "ticks": "",
    "showline": False,
}
# Where the axis of time is broken: pixels to the right, and shares of the height.
_ZIGZAG = "M0,0 " + " ".join(f"L{at % 2 * 8 - 4},{(at + 0.5) / 40}" for at in range(40))


def picture_figure(picture: RunPicture) -> go.Figure:
    """Draw a rollout: waves or stages as columns of clusters, and the available clusters below."""
    row = _NAMED_ROW if picture.is_named else _DOT_ROW
    has_trouble = any(column.troubled for column in picture.columns)
    height = picture.rows * row
    dots = list(_dot_traces(picture))
    names = _NAMES * (has_trouble and not picture.is_named)
    plot = _HEAD + names + height + _LINE
    line = (_LINE - 6) / plot
    return figure(
        *availability_traces(picture),
        *dots,
        *_bar_traces(picture),
        height=plot + _TIMES,
        barmode="overlay",
        margin={"l": _LEFT, "r": 150, "t": 0, "b": _TIMES},
        xaxis={
            "range": [0, picture.slots],
            "tickvals": [at for at, _ in picture.ticks],
            "ticktext": [words for _, words in picture.ticks],
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            **_HIDDEN,
            "showticklabels": True,
            "tickvals": [value for value, _ in picture.marks],
            "domain": [0, line],
            "range": [0, picture.top],
        },
        yaxis2={
            **_HIDDEN,
            "domain": [_LINE / plot, (_LINE + height) / plot],
            "range": [-0.5, picture.rows - 0.5],
        },
        shapes=[
            *lines_of(picture, line),
            # A circle with a wedge is the mark of what is updating.
            *(
                {**_WEDGE, "xanchor": at, "yanchor": row}
                for trace in dots
                if trace.name == "progress"
                for at, row in zip(trace.x, trace.y, strict=True)
            ),
        ],
        annotations=list(words_of(picture, _LINE / plot)),
    )


def availability_traces(picture: RunPicture) -> Iterator[go.Scatter]:
    """Yield the areas of the revisions and the line above them: solid what was, then what is planned."""
    for is_planned, dash, stack in ((False, "solid", "past"), (True, "dot", "planned")):
        own = [point for point in picture.points if point.is_planned is is_planned]
        if not own:
            continue
        end = next(
            (point.at for point in picture.points if point.at > own[-1].at),
            float(picture.slots),
        )
        if picture.now is not None and not is_planned:
            end = picture.now
        times = [*(point.at for point in own), end]
        for part, words, color, planned in _AREAS:
            values = [getattr(point, part) for point in own]
            yield go.Scatter(
                x=times,
                y=[*values, values[-1]],
                mode="lines",
                line={"shape": "hv", "width": 0},
                stackgroup=stack,
                fillcolor=planned if is_planned else color,
                hovertemplate=f"%{{y}} available, {words}<extra></extra>",
            )
        top = [point.available for point in own]
        yield go.Scatter(
            x=times,
            y=[*top, top[-1]],
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": Color.TEXT, "dash": dash},
            hovertemplate="%{y} available<extra></extra>",
        )


def lines_of(picture: RunPicture, height: float) -> Iterator[dict[str, Any]]:
    for start, end, value in picture.minimums:
        yield {
            "type": "line",
            "x0": start,
            "x1": end,
            "y0": value,
            "y1": value,
            "line": {"color": Color.TEXT, "dash": "dash", "width": 1.5},
        }
    for at, level in picture.break_edges.items():
        yield {
            "type": "path",
            "path": _ZIGZAG,
            "xref": "x",
            "yref": "paper",
            "xsizemode": "pixel",
            "xanchor": at,
            "visible": at < picture.slots,
            "line": {
                "color": Color.ATTENTION if level else Color.BORDER,
                "width": 1.5,
            },
        }
    if picture.now is not None:
        yield {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "y0": 0,
            "x0": picture.now,
            "x1": picture.now,
            "y1": height * _BELOW_WORDS,
            "line": {"color": Color.ACCENT, "width": 2},
        }


def words_of(picture: RunPicture, height: float) -> Iterator[dict[str, Any]]:
    for place, column in picture.placed_columns:
        edge: dict[str, Any] = {"x": place + column.width / 2}
        if picture.is_named and not column.is_break:
            edge = {
                "x": place + _NAMED_START * column.width,
                "xanchor": "left",
                "xshift": -8,
                "align": "left",
            }
        yield {
            **edge,
            "yref": "paper",
            "y": 0.72 if column.is_break else 1,
            "yanchor": "top",
            "showarrow": False,
            "bgcolor": Color.PAGE,
            "text": _column_text(column, picture.is_named),
        }
    yield {
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "xanchor": "left",
        "xshift": -_LEFT,
        "y": height,
        "yanchor": "top",
        "showarrow": False,
        "bgcolor": Color.PAGE,
        "text": f"<b>Available clusters</b>  {_AREA_KEY}· {picture.scale}",
    }
    for label in picture.labels:
        yield {
            "xref": "paper",
            "x": 1,
            "xanchor": "left",
            "xshift": 8,
            "y": label.place * picture.top / 100,
            "showarrow": False,
            "text": label.words,
        }


def _dot_traces(picture: RunPicture) -> Iterator[go.Scatter]:
    gap = _DOT_ROW * picture.slots / _USUAL_WIDTH
    places = []
    for place, column in picture.placed_columns:
        # The first, which is in trouble, is on top.
        for turn, dot in enumerate(
            [] if picture.has_bar(column) else reversed(column.dots)
        ):
            if picture.is_named:
                at = place + _NAMED_START * column.width
                row = turn + picture.rows - len(column.dots)
            else:  # two in a row
                at = place + column.width / 2 + (turn % 2 - 0.5) * gap
                row = turn // 2
            places.append((dot, at, row))
    for level, (symbol, color) in _SYMBOLS.items():
        own = [place for place in places if place[0].level == level]
        if own:
            yield go.Scatter(
                yaxis="y2",
                name=level,
                mode="markers+text" if picture.is_named else "markers",
                x=[at for _, at, _ in own],
                y=[row for *_, row in own],
                text=[
                    "  " + "<br>  ".join(filter(None, (dot.cluster, dot.duration)))
                    for dot, *_ in own
                ],
                textposition="middle right",
                customdata=[dot.cluster for dot, *_ in own],
                hovertext=[
                    f"{dot.cluster}: {dot.words} {dot.duration}" for dot, *_ in own
                ],
                hovertemplate="%{hovertext}<extra></extra>",
                marker={"symbol": symbol, "color": color, "size": 16},
            )


def _bar_traces(picture: RunPicture) -> Iterator[Any]:
    """Yield the bars of columns of many clusters by state, with the number of each at its right."""
    gap = _DOT_ROW * picture.slots / _USUAL_WIDTH
    bars = []
    for place, column in picture.barred_columns:
        most = len(column.dots) if column.is_joined else picture.most
        at, low = place + column.width / 2 - gap / 2, -0.5
        for level, words, count in reversed(column.counts):
            size = max(_LEAST_BAR, count / most * BAR_ROWS)
            bars.append((*_SYMBOLS[level], f"{count:,} {words}", at, low, size))
            low += size
    if not bars:
        return
    symbols, colors, texts, places, lows, sizes = zip(*bars, strict=True)
    yield go.Bar(
        yaxis="y2",
        x=places,
        base=lows,
        y=[size - 0.08 for size in sizes],
        width=gap,
        marker={
            "color": [_FILLS.get(color, color) for color in colors],
            "line": {"color": colors, "width": 1},
        },
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )
    yield go.Scatter(
        yaxis="y2",
        mode="markers+text",
        x=[at + gap for at in places],
        y=[low + size / 2 for low, size in zip(lows, sizes, strict=True)],
        text=[f" {text.partition(' ')[0]}" for text in texts],
        textposition="middle right",
        hoverinfo="skip",
        marker={"symbol": symbols, "color": colors, "size": 10},
    )


def _column_text(column: RunColumn, is_named: bool) -> str:
    if column.gate:
        return ""  # a card of the page is there
    if column.is_break:
        reasons = [line for detail in column.details for line in wrap(detail, 24)]
        words = (f"<b>{column.name}</b>", f"<b>{column.lasting}</b>", *reasons)
        return "<br>".join(words)
    lines = [f"<b>{column.name or '–'}</b>", column.note]  # noqa: RUF001 -- nothing to name
    if not is_named:
        lines += [dot.cluster for dot in column.troubled[:2]]
    return "<br>".join(lines)
