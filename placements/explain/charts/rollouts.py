"""Charts of a rollout: availability against its limits (C8), and the timeline of its clusters (C9)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np
import plotly.graph_objects as go

from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.figure import (
    ATTENTION,
    FAILED,
    NEUTRAL,
    OK,
    ON_OK,
    PAGE,
    SHORTEST,
    TEXT,
    Chart,
    clock_words,
    elapsed_axis,
    figure,
    seconds_between,
    whole_ticks,
)

MOST_POINTS = 400
_TAIL = 0.06
"""How much further the last state is drawn, as a part of the time before: a run ends with its last change."""
_COLUMNS = (
    "Elapsed",
    "Previous revision available",
    "New revision available",
    "Not available",
    "Removing",
    "N",
    "Minimum available",
    "Maximum placed",
)


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
    was available at the start, has no minimum. A deletion has no limits at all. Of more than 400 moments those with the least available and the last of each stretch are drawn.
    """
    if not moments:
        return None
    if len(moments) <= MOST_POINTS:
        drawn = list(moments)
    else:
        stretch = -(-2 * len(moments) // MOST_POINTS)
        kept: list[RolloutMoment] = []
        for start in range(0, len(moments), stretch):
            part = moments[start : start + stretch]
            lowest = min(range(len(part)), key=lambda place: part[place].progress.available)
            kept += [part[place] for place in sorted({lowest, len(part) - 1})]
        drawn = kept
    rows = [(seconds_between(since, one.at), one.progress) for one in drawn]
    end = max(seconds_between(since, until), rows[-1][0] * (1 + _TAIL), SHORTEST)
    last, limits = moments[-1].progress, []
    is_initial = not moments[0].progress.available
    if not is_deletion:
        if not is_in_place:
            limits.append((f"N + maxSurge = {last.max_total:,}", last.max_total, "dash"))
        limits.append((f"N = {last.number:,}", last.number, "solid"))
        if not is_initial:
            limits.append((f"N − maxUnavailable = {last.min_available:,}", last.min_available, "dash"))
    return Chart(
        name="area",
        title="Availability during rollout",
        caption=_area_caption(
            moments, is_initial=is_initial, is_in_place=is_in_place, is_deletion=is_deletion
        ),
        figure=_area_figure(rows, end, limits),
        columns=_COLUMNS,
        rows=tuple(
            (
                clock_words(at),
                one.old,
                one.new,
                one.unavailable,
                one.removing,
                one.number,
                one.min_available,
                one.max_total,
            )
            for at, one in rows
        ),
    )


def _area_caption(
    moments: Sequence[RolloutMoment], *, is_initial: bool, is_in_place: bool, is_deletion: bool
) -> str:
    last = moments[-1].progress
    if is_deletion:
        return f"{last.placed} clusters still hold resources of the placement."
    most = max(one.progress.placed for one in moments)
    highest = f"Highest: {most:,} placed (maximum {last.max_total:,})."
    if is_in_place:
        highest = "No maximum: no clusters are added."
    available = f"{last.available:,} of {last.number:,} clusters available."

    if is_initial:
        return f"{available} Initial deployment. {highest}"
    # The lowest availability counts from when the minimum was reached for the first time.
    minimum = last.min_available
    spare = [one.progress.available - one.progress.min_available for one in moments]
    reached = next((place for place, above in enumerate(spare) if above >= 0), None)
    if reached is None:
        applies = f"The minimum does not apply until {minimum:,} clusters are available."
        return f"{available} {applies} {highest}"
    lowest = min(spare[reached:])
    limit = f"(minimum {minimum:,})"
    if lowest < 0:
        limit = f"{-lowest:,} below the minimum of {minimum:,} (clusters failed or unreachable)"
    comma = "," if lowest < 0 else ""
    return f"{available} Lowest: {minimum + lowest:,} available{comma} {limit}. {highest}"


_BANDS: tuple[tuple[str, str, str, str], ...] = (
    ("Previous revision available", "old", NEUTRAL, "/"),
    ("New revision available", "new", OK, ""),
    ("Not available", "unavailable", ATTENTION, "."),
    ("Removing", "removing", FAILED, "x"),
)


def _area_figure(
    rows: Sequence[tuple[float, RolloutProgress]], end: float, limits: Sequence[tuple[str, int, str]]
) -> go.Figure:
    top = max([progress.placed for _, progress in rows] + [level for _, level, _ in limits])
    bands = []
    for name, part, color, pattern in _BANDS:
        counts = [getattr(progress, part) for _, progress in rows]
        if any(counts):
            fill = {"shape": pattern, "fillmode": "replace", "fgcolor": color} if pattern else None
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
    label: dict[str, Any] = {
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
    }
    label |= {"font": {"color": TEXT, "size": 11}, "bgcolor": PAGE, "borderpad": 2, "yshift": 2}
    return figure(
        *bands,
        height=320,
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis=elapsed_axis(end),
        yaxis={"range": [0, top * 1.08 or 1], "title": "Clusters", **whole_ticks(top)},
        shapes=[
            {**across, "y0": level, "y1": level, "line": {"color": TEXT, "dash": dash, "width": 2}}
            for _, level, dash in limits
        ],
        annotations=[{**label, "text": words, "y": level} for words, level, _ in limits],
        margin={"l": 8, "r": 16, "t": 48, "b": 8},
    )


MOST_ROWS = 40
SLOWEST = 20
_ROW = 26


@dataclass(frozen=True, slots=True)
class Span:
    """One start on a cluster: `applied_at` and `ended_at` are None while it has not come so far.

    `outcome` is empty while it is under way; `wave` is the planned one, None where nothing was planned.
    """

    cluster: str
    wave: int | None
    what: str
    started_at: datetime
    applied_at: datetime | None
    ended_at: datetime | None
    outcome: str

    @property
    def is_removal(self) -> bool:
        return self.what == "remove"

    def seconds(self, until: datetime) -> float:
        """Return how long it took, or has taken by `until`."""
        return seconds_between(self.started_at, self.ended_at or until)


def timeline_charts(spans: Sequence[Span], *, since: datetime, until: datetime) -> list[Chart]:
    """Return a row for each cluster; for more than 40 a row for each wave and the 20 that took longest."""
    if not spans:
        return []
    clusters = {span.cluster for span in spans}
    if len(clusters) <= MOST_ROWS:
        return [_cluster_chart("timeline", "Timeline", spans, since, until)]
    by_time = sorted(spans, key=lambda span: (-span.seconds(until), span.cluster))
    slowest = {span.cluster for span in by_time[:SLOWEST]}
    slow = [span for span in spans if span.cluster in slowest]
    return [
        _wave_chart(spans, since, until),
        _cluster_chart("slowest", f"The {len(slowest)} slowest clusters", slow, since, until),
    ]


_Part = Callable[[Span, datetime], tuple[datetime, datetime] | None]
_PARTS: tuple[tuple[str, _Part, str, str], ...] = (
    (
        "applying",
        lambda span, until: (
            None if span.is_removal else (span.started_at, span.applied_at or span.ended_at or until)
        ),
        ATTENTION,
        "",
    ),
    (
        "waiting for availability",
        lambda span, until: (
            None if span.is_removal or not span.applied_at else (span.applied_at, span.ended_at or until)
        ),
        OK,
        "/",
    ),
    (
        "removing",
        lambda span, until: (span.started_at, span.ended_at or until) if span.is_removal else None,
        NEUTRAL,
        "x",
    ),
)
"""The parts of a bar: name, from when until when, color and pattern."""


def _cluster_chart(name: str, title: str, spans: Sequence[Span], since: datetime, until: datetime) -> Chart:
    ordered = sorted(spans, key=_order)
    rows = []
    for span in ordered:
        times = (span.started_at, span.applied_at, span.ended_at)
        clocks = (None if at is None else clock_words(seconds_between(since, at)) for at in times)
        duration = clock_words(span.seconds(until))
        rows.append((span.cluster, span.wave, span.what, *clocks, duration, span.outcome or "in progress"))
    clusters = len({span.cluster for span in spans})
    failed = sum(span.outcome == "failed" for span in spans)
    slowest = max(spans, key=lambda span: (span.seconds(until), span.cluster))
    longest = f"{slowest.cluster} took longest, {clock_words(slowest.seconds(until))}"
    return Chart(
        name=name,
        title=title,
        caption=f"Clusters: {clusters:,}; failed attempts: {failed:,}; {longest}.",
        figure=_cluster_figure(ordered, since, until),
        columns=("Cluster", "Wave", "What", "Started", "Applied", "Ended", "Duration", "Outcome"),
        rows=tuple(rows),
    )


def _order(span: Span) -> tuple[float, datetime, str]:
    return (span.wave or float("inf"), span.started_at, span.cluster)


def _cluster_figure(ordered: Sequence[Span], since: datetime, until: datetime) -> go.Figure:
    bars = []
    for words, part, color, pattern in _PARTS:
        reaches = [(span.cluster, reach) for span in ordered if (reach := part(span, until))]
        bars.append(
            go.Bar(
                orientation="h",
                name=words,
                y=[cluster for cluster, _ in reaches],
                base=[seconds_between(since, start) for _, (start, _) in reaches],
                x=[seconds_between(start, end) for _, (start, end) in reaches],
                customdata=[clock_words(seconds_between(start, end)) for _, (start, end) in reaches],
                marker={"color": color, "pattern": {"shape": pattern, "fillmode": "replace"}},
                hovertemplate=f"%{{y}} {words} %{{customdata}}<extra></extra>",
            )
        )
    failed = [span for span in ordered if span.outcome == "failed"]
    failures = go.Scatter(
        name="failed",
        mode="markers",
        x=[seconds_between(since, span.ended_at or span.started_at) for span in failed],
        y=[span.cluster for span in failed],
        marker={"symbol": "x", "size": 10, "color": FAILED},
        hovertemplate="%{y} failed<extra></extra>",
        showlegend=bool(failed),
    )
    names = list(dict.fromkeys(span.cluster for span in ordered))
    return figure(
        *bars,
        failures,
        height=_ROW * len(names) + 88,
        barmode="overlay",
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"l": 8, "r": 16, "t": 40, "b": 8},
        xaxis=elapsed_axis(seconds_between(since, until)),
        yaxis=_rows_axis(names),
    )


def _rows_axis(names: Sequence[str]) -> dict[str, object]:
    # the first name on top
    return {"categoryorder": "array", "categoryarray": list(names[::-1]), "showgrid": False}


@dataclass(frozen=True, slots=True)
class _WaveTimes:
    words: str
    clusters: int
    start: float
    end: float
    median: float
    slow: float


def _wave_chart(spans: Sequence[Span], since: datetime, until: datetime) -> Chart:
    waves = []
    for number, members in groupby(sorted(spans, key=_order), key=lambda span: span.wave):
        group = list(members)
        median, slow = np.percentile([span.seconds(until) for span in group], [50, 95]).tolist()
        waves.append(
            _WaveTimes(
                "later" if number is None else f"wave {number}",
                len({span.cluster for span in group}),
                min(seconds_between(since, span.started_at) for span in group),
                max(seconds_between(since, span.ended_at or until) for span in group),
                median,
                slow,
            )
        )
    shown = waves if len(waves) <= MOST_ROWS else sorted(waves, key=lambda one: -one.slow)[:MOST_ROWS]
    slowest = max(waves, key=lambda one: one.slow)
    half, most = clock_words(slowest.median), clock_words(slowest.slow)
    durations = f"half of the clusters of {slowest.words} took up to {half}, 95 % up to {most}"
    more = "" if len(shown) == len(waves) else f" Shown: the {len(shown):,} slowest of {len(waves):,} waves."
    return Chart(
        name="timeline",
        title="Timeline by wave",
        caption=f"Waves: {len(waves):,}; {durations}.{more}",
        figure=_wave_figure(shown, seconds_between(since, until)),
        columns=("Wave", "Clusters", "Started", "Ended", "Median", "95th percentile"),
        rows=tuple(
            (one.words, one.clusters, *map(clock_words, (one.start, one.end, one.median, one.slow)))
            for one in shown
        ),
    )


def _wave_figure(waves: Sequence[_WaveTimes], longest: float) -> go.Figure:
    names = [one.words for one in waves]
    bars = go.Bar(
        orientation="h",
        y=names,
        base=[one.start for one in waves],
        x=[max(one.end - one.start, 0.0) for one in waves],
        text=[f"{one.clusters:,} clusters" for one in waves],
        textposition="inside",
        insidetextanchor="start",
        insidetextfont={"color": ON_OK},
        marker={"color": OK},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    medians = go.Scatter(  # each with a line to the 95th percentile
        mode="markers",
        y=names,
        x=[one.start + one.median for one in waves],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [one.slow - one.median for one in waves],
            "arrayminus": [0] * len(waves),
            "color": TEXT,
        },
        marker={"symbol": "line-ns-open", "size": 12, "color": TEXT},
        hoverinfo="skip",
    )
    return figure(
        bars, medians, height=_ROW * len(waves) + 72, xaxis=elapsed_axis(longest), yaxis=_rows_axis(names)
    )
