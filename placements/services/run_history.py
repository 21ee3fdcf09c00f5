"""The history of a rollout for its pictures: the progress over time, and every start."""

from dataclasses import dataclass
from datetime import datetime

from placements.engine.rollout.actions import UpdateReason
from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.figure import seconds_between
from placements.explain.charts.rollouts import Span
from placements.explain.run_pictures import Start
from placements.models import ClusterUpdate, Rollout, RolloutSample

_COUNTS = (
    "old",
    "new",
    "unavailable",
    "removing",
    "number",
    "min_available",
    "max_total",
)
_SPAN = ("cluster_name", "what", "started_at", "applied_at", "ended_at", "outcome")


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Every start of a rollout in order, and its progress from moments on, in seconds since it began."""

    spans: tuple[Span, ...]
    moments: tuple[tuple[float, RolloutProgress], ...]

    @property
    def adds(self) -> bool:
        """Whether it places on clusters that had nothing: only then is there a maximum."""
        return any(span.what == UpdateReason.ADD for span in self.spans)

    def starts(self, since: datetime) -> list[Start]:
        """Return the first start on each cluster, with the end of the last."""
        last = {span.cluster: span for span in self.spans}
        first = {span.cluster: span for span in reversed(self.spans)}
        starts = []
        for name, span in first.items():
            ended_at = last[name].ended_at
            ended = seconds_between(since, ended_at) if ended_at else None
            starts.append(Start(name, seconds_between(since, span.started_at), ended))
        return starts


def history_of(run: Rollout) -> RunHistory:
    waves = {name: number for number, wave in enumerate(run.waves, 1) for name in wave}
    updates = ClusterUpdate.objects.filter(rollout=run).order_by("pk")
    samples = RolloutSample.objects.filter(rollout=run).order_by("at", "pk")
    return RunHistory(
        tuple(
            Span(name, waves.get(name), *rest)
            for name, *rest in updates.values_list(*_SPAN)
        ),
        tuple(
            (seconds_between(run.started_at, at), RolloutProgress(*counts))
            for at, *counts in samples.values_list("at", *_COUNTS)
        ),
    )
