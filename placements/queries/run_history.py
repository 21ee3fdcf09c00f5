"""The history of a run, for its charts: how the clusters stood from moment to moment, and every start."""

from datetime import datetime

from placements.explain.charts.area import Moment, area_chart
from placements.explain.charts.chart import Chart
from placements.explain.charts.timeline import Span, timeline_charts
from placements.models import ClusterUpdate, Rollout, RolloutPoint
from placements.rollout.answer import Why
from placements.rollout.tally import Tally


def run_charts(run: Rollout, *, now: datetime) -> list[Chart]:
    """Draw a run up to `now`, or to its end."""
    until = run.ended_at or now
    spans = _spans(run)
    is_in_place = all(span.what != Why.ADD for span in spans)
    area = area_chart(
        _moments(run),
        since=run.started_at,
        until=until,
        is_in_place=is_in_place,
        is_deletion=run.is_deletion,
    )
    return [*([area] if area else ()), *timeline_charts(spans, since=run.started_at, until=until)]


def _moments(run: Rollout) -> list[Moment]:
    columns = ("old", "new", "unavailable", "removing", "number", "floor", "ceiling")
    rows = RolloutPoint.objects.filter(rollout=run).order_by("at", "pk").values_list("at", *columns)
    return [Moment(at, Tally(*counts)) for at, *counts in rows]


def _spans(run: Rollout) -> list[Span]:
    waves = {name: number for number, wave in enumerate(run.waves, 1) for name in wave}
    columns = ("cluster_name", "what", "started_at", "applied_at", "ended_at", "outcome")
    rows = ClusterUpdate.objects.filter(rollout=run).order_by("pk").values_list(*columns)
    return [Span(name, waves.get(name), *rest) for name, *rest in rows]
