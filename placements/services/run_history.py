"""The history of a rollout for its charts: the progress over time, and every start."""

from datetime import datetime

from placements.engine.rollout.actions import UpdateReason
from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.figure import Chart
from placements.explain.charts.rollouts import (
    RolloutMoment,
    Span,
    area_chart,
    timeline_charts,
)
from placements.models import ClusterUpdate, Rollout, RolloutSample


def run_charts(run: Rollout, *, now: datetime) -> list[Chart]:
    """Return the charts of a rollout up to `now`, or to its end."""
    until = run.ended_at or now
    waves = {name: number for number, wave in enumerate(run.waves, 1) for name in wave}
    columns = (
        "cluster_name",
        "what",
        "started_at",
        "applied_at",
        "ended_at",
        "outcome",
    )
    updates = (
        ClusterUpdate.objects.filter(rollout=run).order_by("pk").values_list(*columns)
    )
    spans = [Span(name, waves.get(name), *rest) for name, *rest in updates]

    counts = (
        "old",
        "new",
        "unavailable",
        "removing",
        "number",
        "min_available",
        "max_total",
    )
    samples = (
        RolloutSample.objects.filter(rollout=run)
        .order_by("at", "pk")
        .values_list("at", *counts)
    )
    area = area_chart(
        [RolloutMoment(at, RolloutProgress(*values)) for at, *values in samples],
        since=run.started_at,
        until=until,
        is_in_place=all(span.what != UpdateReason.ADD for span in spans),
        is_deletion=run.is_deletion,
    )
    return [
        *([area] if area else ()),
        *timeline_charts(spans, since=run.started_at, until=until),
    ]
