"""The history of a rollout for its pictures: the progress over time, and every start."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import TextField
from django.db.models.functions import Cast

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
    seconds: dict[str | None, float | None] = {None: None}
    # Times are read as text: most are those of a whole wave.
    updates = ClusterUpdate.objects.filter(rollout=run).order_by("pk")
    texts = (Cast(name, TextField()) for name in ("started_at", "ended_at"))
    for name, what, *moments in updates.values_list("cluster_name", "what", *texts):
        for text in moments:
            if text not in seconds:
                moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
                seconds[text] = seconds_between(run.started_at, moment)
        at, ended = map(seconds.__getitem__, moments)
        first = starts.get(name)
        starts[name] = Start(name, first.at if first else at or 0.0, ended)
        adds = adds or what == UpdateReason.ADD
    samples = moments_of(run, since=run.started_at)
    return RunHistory(tuple(starts.values()), tuple(samples), adds)


def moments_of(
    run: Rollout | StagedRun, *, since: datetime
) -> list[tuple[float, RolloutProgress]]:
    """Return the progress of a run as it was observed, in seconds since a moment."""
    samples = run.samples.order_by("at", "pk")
    return [
        (seconds_between(since, at), RolloutProgress(*counts))
        for at, *counts in samples.values_list("at", *_COUNTS)
    ]
