"""The history of a rollout for its pictures: the progress over time, and every start."""

from dataclasses import dataclass
from datetime import datetime

from placements.engine.rollout.actions import UpdateReason
from placements.engine.rollout.waves import RolloutProgress
from placements.explain.run_pictures import Start
from placements.explain.vocabulary import seconds_between
from placements.models import ClusterUpdate, Rollout, StagedRun

_COUNTS = (
    "old",
    "new",
    "unavailable",
    "removing",
    "number",
    "min_available",
    "max_total",
)


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The starts of a rollout, and its progress from moments on; times are seconds since it began.

    A start is the first on its cluster, with the end of the last. `adds`: it places on clusters that had
    nothing; only then is there a maximum.
    """

    starts: tuple[Start, ...]
    moments: tuple[tuple[float, RolloutProgress], ...]
    adds: bool


def history_of(run: Rollout) -> RunHistory:
    starts: dict[str, Start] = {}
    adds = False
    updates = ClusterUpdate.objects.filter(rollout=run).order_by("pk")
    for name, what, started_at, ended_at in updates.values_list(
        "cluster_name", "what", "started_at", "ended_at"
    ):
        ended = None
        if ended_at:
            ended = seconds_between(run.started_at, ended_at)
        first = starts.get(name)
        at = first.at if first else seconds_between(run.started_at, started_at)
        starts[name] = Start(name, at, ended)
        adds = adds or what == UpdateReason.ADD
    moments = moments_of(run, since=run.started_at)
    return RunHistory(tuple(starts.values()), tuple(moments), adds)


def moments_of(
    run: Rollout | StagedRun, *, since: datetime
) -> list[tuple[float, RolloutProgress]]:
    """Return the progress of a run as it was observed, in seconds since a moment."""
    samples = run.samples.order_by("at", "pk")
    return [
        (seconds_between(since, at), RolloutProgress(*counts))
        for at, *counts in samples.values_list("at", *_COUNTS)
    ]
