"""Charts of a rollout: availability against its limits (C8), and the timeline of its clusters (C9)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.figure import (
    SHORTEST,
    Chart,
    Color,
    duration_text,
    elapsed_axis,
    figure,
    seconds_between,
    whole_ticks,
)

MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class RolloutMoment:
    """The progress of a rollout from one moment on."""

    at: datetime
    progress: RolloutProgress


def area_chart(
    moments: Sequence[RolloutMoment],
    *,
    since: datetime,
    until: datetime,
    is_in_place: bool,
    is_deletion: bool,
) -> Chart | None:
    """Return a chart of the clusters by progress over time with the limits; None before the first moment.

    A rollout that only updates in place has no maximum: it adds nothing. An initial deployment, where nothing
    was available at the start, is drawn without limits. A deletion has no limits at all. Of more than
    400 moments those with the least available and the last of each stretch are drawn.
    """
    if not moments:
        return None
    drawn = list(moments)
    if len(moments) > MOST_POINTS:
        stretch = -(-2 * len(moments) // MOST_POINTS)
        drawn = []
        for start in range(0, len(moments), stretch):
            part = moments[start : start + stretch]
            lowest = min(
                range(len(part)), key=lambda place: part[place].progress.available
            )
            drawn += [part[place] for place in sorted({lowest, len(part) - 1})]
    rows = [(seconds_between(since, one.at), one.progress) for one in drawn]
    # The last state is drawn a little further than the time before: a run ends with its last change.
    end = max(seconds_between(since, until), rows[-1][0] * 1.06, SHORTEST)
    last, limits = moments[-1].progress, []
    is_initial = not moments[0].progress.available
    if not is_deletion and not is_initial:
        if not is_in_place:
            limits.append(
                (f"N + maxSurge = {last.max_total:,}", last.max_total, "dash")
            )
        limits.append((f"N = {last.number:,}", last.number, "solid"))
        limits.append(
            (f"N − maxUnavailable = {last.min_available:,}", last.min_available, "dash")
        )

    caption = f"{last.placed} clusters still hold resources of the placement."
    if not is_deletion:
        least = (
            "Initial deployment: no minimum applies."
            if is_initial
            else _lowest_available(moments)
        )
        most = "No maximum: no clusters are added."
        if not is_in_place:
            placed = max(one.progress.placed for one in moments)
            most = f"Highest: {placed:,} placed (maximum {last.max_total:,})."
        caption = (
            f"{last.available:,} of {last.number:,} clusters available. {least} {most}"
        )
    counts = [field for _, field, *_ in _BANDS] + [
        "number",
        "min_available",
        "max_total",
    ]
    return Chart(
        name="area",
        title="Availability during rollout",
        caption=caption,
        figure=_area_figure(rows, end, limits, is_initial=is_initial),
        columns=(
            "Elapsed",
            *(name for name, *_ in _BANDS),
            "N",
            "Minimum available",
            "Maximum placed",
        ),
        rows=tuple(
            (duration_text(at), *(getattr(one, field) for field in counts))
            for at, one in rows
        ),
    )


def _lowest_available(moments: Sequence[RolloutMoment]) -> str:
    """Return the lowest availability since the minimum was reached for the first time."""
    minimum = moments[-1].progress.min_available
    spare = [one.progress.available - one.progress.min_available for one in moments]
    reached = next((place for place, above in enumerate(spare) if above >= 0), None)
    if reached is None:
        return f"The minimum does not apply until {minimum:,} clusters are available."
    lowest = min(spare[reached:])
    if lowest < 0:
        below = f"{-lowest:,} below the minimum of {minimum:,} (clusters failed or unreachable)"
        return f"Lowest: {minimum + lowest:,} available, {below}."
    return f"Lowest: {minimum + lowest:,} available (minimum {minimum:,})."


_BANDS: tuple[tuple[str, str, str, str], ...] = (
    ("Previous revision available", "old", Color.NEUTRAL, "/"),
    ("New revision available", "new", Color.HEALTHY, ""),
    ("Not available", "unavailable", Color.ATTENTION, ""),
    ("Removing", "removing", Color.PROGRESS, "x"),
)


def _area_figure(
    rows: Sequence[tuple[float, RolloutProgress]],
    end: float,
    limits: Sequence[tuple[str, int, str]],
    *,
    is_initial: bool,
) -> go.Figure:
    top = max(
        [progress.placed for _, progress in rows] + [level for _, level, _ in limits]
    )
    bands = []
    for name, part, usual, pattern in _BANDS:
        color = Color.PROGRESS if is_initial and usual == Color.ATTENTION else usual
        counts = [getattr(progress, part) for _, progress in rows]
        if any(counts):
            fill = (
                {"shape": pattern, "fillmode": "replace", "fgcolor": color}
                if pattern
                else None
            )
            bands.append(
                go.Scatter(
                    x=[*(at for at, _ in rows), max(end, rows[-1][0])],
                    y=[*counts, counts[-1]],
                    name=name,
                    mode="lines",
                    line={"shape": "hv", "width": 0.5, "color": color},
                    stackgroup="clusters",
                    fillcolor=color,
                    fillpattern=fill,
                    hovertemplate=f"%{{y}} {name}<extra></extra>",
                )
            )
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1}
    label: dict[str, object] = {"xref": "paper", "x": 1, "xanchor": "left"}
    label |= {"font": {"color": Color.TEXT, "size": 11}, "xshift": 4}
    # The highest label is above its line and the lowest below, so that near ones do not overlap.
    anchors = (
        ["bottom", "middle", "top"]
        if len(limits) > 2
        else ["bottom", "top"][: len(limits)]
    )
    return figure(
        *bands,
        height=200,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=elapsed_axis(end),
        yaxis={"range": [0, top * 1.08 or 1], "title": "Clusters", **whole_ticks(top)},
        shapes=[
            {
                **across,
                "y0": level,
                "y1": level,
                "line": {"color": color, "dash": stroke, "width": width},
            }
            for _, level, dash in limits  # on the page's color: the text color is faint on a light band
            for color, stroke, width in (
                (Color.PAGE, "solid", 4),
                (Color.TEXT, dash, 2),
            )
        ],
        annotations=[
            {**label, "showarrow": False, "text": words, "y": level, "yanchor": anchor}
            for (words, level, _), anchor in zip(limits, anchors, strict=True)
        ],
        margin={"l": 8, "r": 168 if limits else 16, "t": 32, "b": 8},
    )


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
