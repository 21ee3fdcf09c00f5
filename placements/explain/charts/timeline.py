"""C9, the timeline of a run: what happened when, and who is slow?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from placements.explain.charts.chart import ATTENTION, FAILED, NEUTRAL, OK, ON_OK, TEXT, Cell, Chart, figure
from placements.explain.charts.elapsed import clock_words, elapsed_axis, seconds_between

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
        """Tell whether the cluster is cleared."""
        return self.what == "remove"

    def seconds(self, until: datetime) -> float:
        """Give how long it took, or takes by `until`."""
        return seconds_between(self.started_at, self.ended_at or until)


def timeline_charts(spans: Sequence[Span], *, since: datetime, until: datetime) -> list[Chart]:
    """Draw a row for each cluster, for more than 40 a row for each wave and the 20 that took longest."""
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


def _applying(span: Span, until: datetime) -> tuple[datetime, datetime] | None:
    if span.is_removal:
        return None
    return span.started_at, span.applied_at or span.ended_at or until


def _settling(span: Span, until: datetime) -> tuple[datetime, datetime] | None:
    if span.applied_at is None or span.is_removal:
        return None
    return span.applied_at, span.ended_at or until


def _removing(span: Span, until: datetime) -> tuple[datetime, datetime] | None:
    return (span.started_at, span.ended_at or until) if span.is_removal else None


_PARTS: tuple[tuple[str, _Part, str, str], ...] = (
    ("applying", _applying, ATTENTION, ""),
    ("settling", _settling, OK, "/"),
    ("removing", _removing, NEUTRAL, "x"),
)


def _cluster_chart(name: str, title: str, spans: Sequence[Span], since: datetime, until: datetime) -> Chart:
    ordered = sorted(spans, key=_in_order)
    return Chart(
        name=name,
        title=title,
        caption=_cluster_caption(spans, until),
        figure=_cluster_figure(ordered, since, until),
        columns=("Cluster", "Wave", "What", "Started", "Applied", "Ended", "Took", "Outcome"),
        rows=tuple(_row(span, since, until) for span in ordered),
    )


def _cluster_caption(spans: Sequence[Span], until: datetime) -> str:
    clusters = len({span.cluster for span in spans})
    failed = sum(span.outcome == "failed" for span in spans)
    slowest = max(spans, key=lambda span: (span.seconds(until), span.cluster))
    took = clock_words(slowest.seconds(until))
    return f"Clusters: {clusters:,}; failed attempts: {failed:,}; {slowest.cluster} took longest, {took}."


def _cluster_figure(ordered: Sequence[Span], since: datetime, until: datetime) -> go.Figure:
    names = list(dict.fromkeys(span.cluster for span in ordered))
    return figure(
        *(_bars(ordered, words, part, color, hatch, since, until) for words, part, color, hatch in _PARTS),
        _failures([span for span in ordered if span.outcome == "failed"], since),
        height=_ROW * len(names) + 88,
        barmode="overlay",
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        margin={"l": 8, "r": 16, "t": 40, "b": 8},
        xaxis=elapsed_axis(seconds_between(since, until)),
        yaxis=_rows_axis(names),
    )


def _rows_axis(names: Sequence[str]) -> dict[str, object]:
    """Give an axis with the first name on top."""
    return {"categoryorder": "array", "categoryarray": list(names[::-1]), "showgrid": False}


def _in_order(span: Span) -> tuple[float, datetime, str]:
    return (span.wave or float("inf"), span.started_at, span.cluster)


def _row(span: Span, since: datetime, until: datetime) -> tuple[Cell, ...]:
    moments = (span.started_at, span.applied_at, span.ended_at)
    clocks = (None if one is None else clock_words(seconds_between(since, one)) for one in moments)
    took = clock_words(span.seconds(until))
    return (span.cluster, span.wave, span.what, *clocks, took, span.outcome or "under way")


def _bars(
    spans: Sequence[Span], words: str, part: _Part, color: str, hatch: str, since: datetime, until: datetime
) -> go.Bar:
    found = [(span.cluster, reach) for span in spans if (reach := part(span, until))]
    return go.Bar(
        orientation="h",
        name=words,
        y=[cluster for cluster, _ in found],
        base=[seconds_between(since, begin) for _, (begin, _) in found],
        x=[seconds_between(begin, end) for _, (begin, end) in found],
        customdata=[clock_words(seconds_between(begin, end)) for _, (begin, end) in found],
        marker={"color": color, "pattern": {"shape": hatch, "fillmode": "replace"}},
        hovertemplate=f"%{{y}} {words} %{{customdata}}<extra></extra>",
    )


def _failures(failed: Sequence[Span], since: datetime) -> go.Scatter:
    return go.Scatter(
        name="failed",
        mode="markers",
        x=[seconds_between(since, span.ended_at or span.started_at) for span in failed],
        y=[span.cluster for span in failed],
        marker={"symbol": "x", "size": 10, "color": FAILED},
        hovertemplate="%{y} failed<extra></extra>",
        showlegend=bool(failed),
    )


@dataclass(frozen=True, slots=True)
class _Wave:
    words: str
    clusters: int
    begin: float
    end: float
    median: float
    slow: float


def _wave_chart(spans: Sequence[Span], since: datetime, until: datetime) -> Chart:
    waves = _waves(spans, since, until)
    shown = waves if len(waves) <= MOST_ROWS else sorted(waves, key=lambda one: -one.slow)[:MOST_ROWS]
    return Chart(
        name="timeline",
        title="Timeline by wave",
        caption=_wave_caption(waves, len(shown)),
        figure=_wave_figure(shown, seconds_between(since, until)),
        columns=("Wave", "Clusters", "Began", "Ended", "Median", "95th percentile"),
        rows=tuple(
            (one.words, one.clusters, *map(clock_words, (one.begin, one.end, one.median, one.slow)))
            for one in shown
        ),
    )


def _wave_caption(waves: Sequence[_Wave], shown: int) -> str:
    slowest = max(waves, key=lambda one: one.slow)
    half, most = clock_words(slowest.median), clock_words(slowest.slow)
    told = "" if shown == len(waves) else f" Shown are the {shown:,} slowest of {len(waves):,} waves."
    half_and_most = f"half of the clusters of {slowest.words} took up to {half}, 95 % up to {most}"
    return f"Waves: {len(waves):,}; {half_and_most}.{told}"


def _wave_figure(waves: Sequence[_Wave], longest: float) -> go.Figure:
    names = [one.words for one in waves]
    return figure(
        go.Bar(
            orientation="h",
            y=names,
            base=[one.begin for one in waves],
            x=[max(one.end - one.begin, 0.0) for one in waves],
            text=[f"{one.clusters:,} clusters" for one in waves],
            textposition="inside",
            insidetextanchor="start",
            insidetextfont={"color": ON_OK},
            marker={"color": OK},
            hovertemplate="%{y}: %{text}<extra></extra>",
        ),
        _whiskers(waves),
        height=_ROW * len(waves) + 72,
        xaxis=elapsed_axis(longest),
        yaxis=_rows_axis(names),
    )


def _whiskers(waves: Sequence[_Wave]) -> go.Scatter:
    """Mark the median of each wave with a line to its 95th percentile."""
    return go.Scatter(
        mode="markers",
        y=[one.words for one in waves],
        x=[one.begin + one.median for one in waves],
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


def _waves(spans: Sequence[Span], since: datetime, until: datetime) -> list[_Wave]:
    ordered = sorted(spans, key=_in_order)
    return [
        _wave(number, list(group), since, until)
        for number, group in groupby(ordered, key=lambda span: span.wave)
    ]


def _wave(number: int | None, spans: Sequence[Span], since: datetime, until: datetime) -> _Wave:
    times = [span.seconds(until) for span in spans]
    median, slow = np.percentile(times, [50, 95]).tolist()
    return _Wave(
        "later" if number is None else f"wave {number}",
        len({span.cluster for span in spans}),
        min(seconds_between(since, span.started_at) for span in spans),
        max(seconds_between(since, span.ended_at or until) for span in spans),
        median,
        slow,
    )
