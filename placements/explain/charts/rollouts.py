"""Charts of a rollout: its picture, and the timeline of its clusters (C9)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from placements.explain.charts.figure import (
    Chart,
    Color,
    duration_text,
    elapsed_axis,
    figure,
    seconds_between,
)
from placements.explain.run_pictures import RunColumn, RunPicture

MOST_ROWS, _ROW = 40, 26


@dataclass(frozen=True, slots=True)
class Span:
    """One start on a cluster: `applied_at` and `ended_at` are None before that.

    `outcome` is empty until it has ended; `wave` is the planned one, None where nothing was planned.
    """

    cluster: str
    wave: int | None
    what: str
    started_at: datetime
    applied_at: datetime | None
    ended_at: datetime | None
    outcome: str

    def seconds(self, until: datetime) -> float:
        return seconds_between(self.started_at, self.ended_at or until)


def timeline_charts(
    spans: Sequence[Span], *, since: datetime, until: datetime
) -> list[Chart]:
    """Return a row for each cluster; for more than 40 a row for each wave and the 20 that took longest."""
    if not spans:
        return []
    clusters = {span.cluster for span in spans}
    if len(clusters) <= MOST_ROWS:
        return [_cluster_chart("timeline", "Timeline", spans, since, until)]
    by_time = nsmallest(
        20, spans, key=lambda span: (-span.seconds(until), span.cluster)
    )
    slowest = {span.cluster for span in by_time}
    slow = [span for span in spans if span.cluster in slowest]
    return [
        _wave_chart(spans, since, until),
        _cluster_chart(
            "slowest", f"The {len(slowest)} slowest clusters", slow, since, until
        ),
    ]


def _bar_parts(span: Span, until: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield the parts of a bar: name, from when, until when."""
    end = span.ended_at or until
    if span.what == "remove":
        yield "removing", span.started_at, end
        return
    yield "applying", span.started_at, span.applied_at or end
    if span.applied_at:
        yield "waiting for availability", span.applied_at, end


_PARTS = (
    ("applying", Color.PROGRESS, ""),
    ("waiting for availability", Color.PROGRESS, "/"),
    ("removing", Color.NEUTRAL, "x"),
)


def _cluster_chart(
    name: str, title: str, spans: Sequence[Span], since: datetime, until: datetime
) -> Chart:
    ordered = sorted(spans, key=_order)
    rows = []
    for span in ordered:
        times = (span.started_at, span.applied_at, span.ended_at)
        clocks = (
            None if at is None else duration_text(seconds_between(since, at))
            for at in times
        )
        duration = duration_text(span.seconds(until))
        rows.append(
            (
                span.cluster,
                span.wave,
                span.what,
                *clocks,
                duration,
                span.outcome or "in progress",
            )
        )
    bars = []
    reaches = [
        (span.cluster, *part) for span in ordered for part in _bar_parts(span, until)
    ]
    for words, color, pattern in _PARTS:
        drawn = [
            (cluster, start, end)
            for cluster, part, start, end in reaches
            if part == words
        ]
        bars.append(
            go.Bar(
                orientation="h",
                name=words,
                y=[cluster for cluster, *_ in drawn],
                base=[seconds_between(since, start) for _, start, _ in drawn],
                x=[seconds_between(start, end) for _, start, end in drawn],
                customdata=[
                    duration_text(seconds_between(start, end))
                    for _, start, end in drawn
                ],
                marker={
                    "color": color,
                    "pattern": {"shape": pattern, "fillmode": "replace"},
                },
                hovertemplate=f"%{{y}} {words} %{{customdata}}<extra></extra>",
            )
        )
    failed = [span for span in ordered if span.outcome == "failed"]
    failures = go.Scatter(
        name="failed",
        mode="markers",
        x=[seconds_between(since, span.ended_at or span.started_at) for span in failed],
        y=[span.cluster for span in failed],
        marker={"symbol": "x", "size": 10, "color": Color.FAILED},
        hovertemplate="%{y} failed<extra></extra>",
        showlegend=bool(failed),
    )
    names = list(dict.fromkeys(span.cluster for span in ordered))
    slowest = max(spans, key=lambda span: (span.seconds(until), span.cluster))
    longest = f"{slowest.cluster} took longest, {duration_text(slowest.seconds(until))}"
    return Chart(
        name=name,
        title=title,
        caption=f"Clusters: {len(names):,}; failed attempts: {len(failed):,}; {longest}.",
        figure=figure(
            *bars,
            failures,
            height=_ROW * len(names) + 88,
            barmode="overlay",
            showlegend=True,
            legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            margin={"l": 8, "r": 16, "t": 40, "b": 8},
            xaxis=elapsed_axis(seconds_between(since, until)),
            yaxis=_rows_axis(names),
        ),
        columns=(
            "Cluster",
            "Wave",
            "Action",
            "Started",
            "Applied",
            "Ended",
            "Duration",
            "Outcome",
        ),
        rows=tuple(rows),
    )


def _order(span: Span) -> tuple[float, datetime, str]:
    return (span.wave or float("inf"), span.started_at, span.cluster)


def _rows_axis(names: Sequence[str]) -> dict[str, object]:
    # the first name on top
    return {
        "categoryorder": "array",
        "categoryarray": list(names[::-1]),
        "showgrid": False,
    }


def _wave_chart(spans: Sequence[Span], since: datetime, until: datetime) -> Chart:
    waves = []  # words, clusters, first start, last end, median, 95th percentile
    for number, members in groupby(
        sorted(spans, key=_order), key=lambda span: span.wave
    ):
        group = list(members)
        start = seconds_between(since, min([span.started_at for span in group]))
        end = seconds_between(since, max([span.ended_at or until for span in group]))
        median, slow = np.percentile(
            [span.seconds(until) for span in group], [50, 95]
        ).tolist()
        words = "later" if number is None else f"wave {number}"
        waves.append(
            (words, len({span.cluster for span in group}), start, end, median, slow)
        )
    rows = (
        waves
        if len(waves) <= MOST_ROWS
        else sorted(waves, key=lambda one: -one[-1])[:MOST_ROWS]
    )
    words, *_, median, slow = max(waves, key=lambda one: one[-1])
    half, most = duration_text(median), duration_text(slow)
    durations = f"half of the clusters of {words} took up to {half}, 95 % up to {most}"
    more = (
        ""
        if len(rows) == len(waves)
        else f" Shown: the {len(rows):,} slowest of {len(waves):,} waves."
    )

    names, clusters, starts, ends, medians, slows = zip(*rows, strict=True)
    bars = go.Bar(
        orientation="h",
        y=names,
        base=starts,
        x=[max(end - start, 0.0) for start, end in zip(starts, ends, strict=True)],
        text=[f"{count:,} clusters" for count in clusters],
        textposition="inside",
        insidetextanchor="start",
        insidetextfont={"color": Color.ON_SERIES},
        marker={"color": Color.SERIES},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    upwards = [slow - median for slow, median in zip(slows, medians, strict=True)]
    halves = go.Scatter(  # each with a line to the 95th percentile
        mode="markers",
        y=names,
        x=[start + median for start, median in zip(starts, medians, strict=True)],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": upwards,
            "arrayminus": [0] * len(rows),
            "color": Color.TEXT,
        },
        marker={"symbol": "line-ns-open", "size": 12, "color": Color.TEXT},
        hoverinfo="skip",
    )
    height, axis = _ROW * len(rows) + 72, elapsed_axis(seconds_between(since, until))
    return Chart(
        name="timeline",
        title="Timeline by wave",
        caption=f"Waves: {len(waves):,}; {durations}.{more}",
        figure=figure(bars, halves, height=height, xaxis=axis, yaxis=_rows_axis(names)),
        columns=("Wave", "Clusters", "Started", "Ended", "Median", "95th percentile"),
        rows=tuple(
            (words, count, *map(duration_text, times)) for words, count, *times in rows
        ),
    )


_SYMBOLS = {
    "healthy": ("circle", Color.HEALTHY),
    "progress": ("circle-cross-open", Color.PROGRESS),
    "attention": ("triangle-up", Color.ATTENTION),
    "failed": ("x", Color.FAILED),
    "unknown": ("diamond-open", Color.UNKNOWN),
    "pending": ("circle-open", Color.QUIET),
}
_AREAS = (
    ("new", "updated", Color.HEALTHY, Color.CALM),
    ("old", "before", Color.BAND, Color.HOVER),
)
"""The areas of a revision: its part of a point, its words, its color, and that of what is planned."""
_HEAD, _NAMES, _DOT_ROW, _NAMED_ROW, _LINE, _TIMES = 40, 28, 26, 32, 136, 24
"""Heights in pixels: heads of columns, names of trouble, rows of dots, the line, its times."""
_USUAL_WIDTH = 1000
"""The width of the columns in pixels, for the distance of two dots."""


def picture_figure(picture: RunPicture) -> go.Figure:
    """Draw a rollout: waves or stages as columns of clusters, and the available clusters below."""
    row = _NAMED_ROW if picture.is_named else _DOT_ROW
    head = _HEAD + (0 if picture.is_named else _NAMES * picture.has_trouble)
    dots = picture.rows * row
    plot = head + dots + _LINE
    line = (_LINE - 6) / plot
    areas = []
    for part, words, color, planned in _AREAS:
        for is_planned in (False, True):
            own = [one for one in picture.points if one.is_planned is is_planned]
            if not own:
                continue
            later = [one.at for one in picture.points if one.at > own[-1].at]
            end = later[0] if later and not is_planned else float(picture.slots)
            if not is_planned and picture.now is not None:
                end = picture.now
            values = [getattr(one, part) for one in own]
            areas.append(
                go.Scatter(
                    x=[*(one.at for one in own), end],
                    y=[*values, values[-1]],
                    mode="lines",
                    line={"shape": "hv", "width": 0},
                    stackgroup="planned" if is_planned else "past",
                    fillcolor=planned if is_planned else color,
                    hovertemplate=f"%{{y}} on the revision {words}<extra></extra>",
                )
            )
    for is_planned in (False, True):
        own = [one for one in picture.points if one.is_planned is is_planned]
        ends = [picture.now or picture.slots] if not is_planned else [picture.slots]
        top = [one.old + one.new for one in own]
        if own:
            areas.append(
                go.Scatter(
                    x=[*(one.at for one in own), *ends],
                    y=[*top, top[-1]],
                    mode="lines",
                    line={
                        "shape": "hv",
                        "width": 1.5,
                        "color": Color.TEXT,
                        "dash": "dot" if is_planned else "solid",
                    },
                    hovertemplate="%{y} available<extra></extra>",
                )
            )
    hidden = {
        "showgrid": False,
        "zeroline": False,
        "showticklabels": False,
        "ticks": "",
        "showline": False,
    }
    edges = {"type": "line", "xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    shapes: list[dict[str, object]] = [
        {
            "type": "line",
            "x0": start,
            "x1": end,
            "y0": value,
            "y1": value,
            "line": {"color": Color.TEXT, "dash": "dash", "width": 1.5},
        }
        for start, end, value in picture.minimums
    ]
    for place, column in picture.placed_columns:
        if column.is_break:
            color = Color.ATTENTION if column.level else Color.BORDER
            dashes = {"color": color, "dash": "dashdot", "width": 1.5}
            shapes += [
                {**edges, "x0": at, "x1": at, "line": dashes}
                for at in (place, place + column.width)
            ]
    if picture.now is not None:
        shapes.append(
            {
                **edges,
                "x0": picture.now,
                "x1": picture.now,
                "y1": line,
                "line": {"color": Color.ACCENT, "width": 2},
            }
        )
    return figure(
        *areas,
        *_dot_traces(picture),
        height=plot + _TIMES,
        margin={"l": 60, "r": 130, "t": 0, "b": _TIMES},
        xaxis={
            "range": [0, picture.slots],
            "tickvals": [at for at, _ in picture.ticks],
            "ticktext": [words for _, words in picture.ticks],
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={**hidden, "domain": [0, line], "range": [0, picture.top]},
        yaxis2={
            **hidden,
            "domain": [_LINE / plot, (_LINE + dots) / plot],
            "range": [-0.5, picture.rows - 0.5],
        },
        shapes=shapes,
        annotations=[
            *(
                {
                    "x": place + column.width / 2,
                    "yref": "paper",
                    "y": 0.72 if column.is_break else 1,
                    "yanchor": "top",
                    "showarrow": False,
                    "text": _column_text(column, picture.is_named),
                }
                for place, column in picture.placed_columns
            ),
            {
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "xanchor": "left",
                "xshift": -60,
                "y": _LINE / plot,
                "yanchor": "top",
                "showarrow": False,
                "text": "<b>Available clusters</b>",
            },
            *(
                {
                    "xref": "paper",
                    "x": 1,
                    "xanchor": "left",
                    "xshift": 8,
                    "y": one.place * picture.top / 100,
                    "showarrow": False,
                    "text": one.words,
                }
                for one in picture.labels
            ),
        ],
    )


def _dot_traces(picture: RunPicture) -> Iterator[go.Scatter]:
    across = 1 if picture.is_named else 2
    gap = _DOT_ROW * picture.slots / _USUAL_WIDTH
    places = []
    for place, column in picture.placed_columns:
        middle = place + column.width / 2
        # The first, which is in trouble, is on top.
        for turn, dot in enumerate([] if column.is_crowded else reversed(column.dots)):
            shift = 0.0 if across == 1 else (turn % 2 - 0.5) * gap
            start = place + 0.12 * column.width if across == 1 else middle
            row = turn // across
            if across == 1:
                row += picture.rows - len(column.dots)
            places.append((dot, start + shift, row))
    for level, (symbol, color) in _SYMBOLS.items():
        own = [one for one in places if one[0].level == level]
        if own:
            yield go.Scatter(
                yaxis="y2",
                mode="markers+text" if picture.is_named else "markers",
                x=[at for _, at, _ in own],
                y=[row for *_, row in own],
                text=[f"  {dot.cluster}" for dot, *_ in own],
                textposition="middle right",
                customdata=[dot.cluster for dot, *_ in own],
                hovertext=[
                    f"{dot.cluster}: {dot.words} {dot.duration}" for dot, *_ in own
                ],
                hovertemplate="%{hovertext}<extra></extra>",
                marker={"symbol": symbol, "color": color, "size": 16},
            )


def _column_text(column: RunColumn, is_named: bool) -> str:
    if column.gate:
        return ""  # a card of the page is there
    if column.is_break:
        return "<br>".join([f"<b>{column.name}</b>", f"<b>{column.lasting}</b>"])
    lines = [f"<b>{column.name or '–'}</b>", column.note]  # noqa: RUF001 -- nothing to name
    if column.is_crowded:
        lines += [f"{count:,} {words}" for _, words, count in column.counts]
    elif not is_named:
        lines += [one.cluster for one in column.troubled[:2]]
    return "<br>".join(lines)
