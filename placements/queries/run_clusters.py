"""The clusters of a run, one row each: as they are while it is under way, as they came out of it later."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from placements.explain.rollout_reading import version_name
from placements.explain.rollout_wording import waiting_sentence
from placements.explain.run_wording import Progress
from placements.models import Binding, ClusterUpdate, Placement, Rollout
from placements.queries.runs import Said
from placements.rollout.answer import Waiting
from placements.rollout.state import EMPTY, Phase
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.strategy import RollingUpdate
from placements.scheduling.spec import parse_placement

NOT_STARTED = "not-started"
SUPERSEDED = ClusterUpdate.Outcome.SUPERSEDED


@dataclass(frozen=True, slots=True)
class ClusterInRun:
    """One cluster in a run: `wave` as planned, `phase` how far it is or how it came out of the run.

    `began_at` and `ended_at` are those of the last start on it; without an end it is under way.
    """

    cluster: str
    wave: int | None
    phase: str
    since: datetime | None = None
    running: str | None = None
    wanted: str | None = None
    attempts: int = 0
    retry_at: datetime | None = None
    message: str = ""
    block: str = ""
    why: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_failed(self) -> bool:
        """Tell whether it can be tried again."""
        return self.phase in (Phase.FAILED, Phase.REMOVE_FAILED)


def names_in(run: Rollout) -> list[str]:
    """Give every cluster of a run: those of its waves in their order, then the others by name."""
    planned = [name for wave in run.waves for name in wave]
    others = set(ClusterUpdate.objects.filter(rollout=run).values_list("cluster_name", flat=True))
    if run.state == Rollout.State.RUNNING:
        others |= set(_bindings(run).values_list("cluster_name", flat=True))
    return [*dict.fromkeys(planned), *sorted(others.difference(planned))]


def clusters_in(run: Rollout, names: Iterable[str], said: Said) -> list[ClusterInRun]:
    """Give the rows of these clusters of a run, in this order."""
    listed = list(names)
    waves = {name: number for number, wave in enumerate(run.waves, 1) for name in wave}
    is_running = run.state == Rollout.State.RUNNING
    found = _bindings(run).filter(cluster_name__in=listed) if is_running else Binding.objects.none()
    bindings = {row.cluster_name: row for row in found}
    updates = ClusterUpdate.objects.filter(rollout=run, cluster_name__in=listed).order_by("pk")
    latest = {row.cluster_name: row for row in updates}
    waiting = {one.cluster: one for one in said.answer.waiting} if said.answer else {}
    return [
        replace(_of_binding(bindings[name], run, waves.get(name), said, waiting.get(name)), **_times(update))
        if name in bindings
        else replace(_of_update(name, update, waves.get(name), said), **_times(update))
        for name in listed
        for update in [latest.get(name)]
    ]


def _times(update: ClusterUpdate | None) -> dict[str, Any]:
    return {"began_at": update.started_at, "ended_at": update.ended_at} if update else {}


def _bindings(run: Rollout) -> QuerySet[Binding]:
    return Binding.objects.filter(placement=run.placement_id)


def _of_binding(
    binding: Binding, run: Rollout, wave: int | None, said: Said, waiting: Waiting | None
) -> ClusterInRun:
    is_wanted = binding.state != BindingState.UNSCHEDULED and not run.is_deletion
    has_anything = binding.phase not in EMPTY
    return ClusterInRun(
        binding.cluster_name,
        wave,
        binding.phase,
        binding.phase_since,
        version_name(binding.running_version, said.names) if has_anything else None,
        version_name(run.version, said.names) if is_wanted else None,
        binding.attempts,
        binding.retry_at,
        binding.message,
        str(waiting.block) if waiting else "",
        waiting_sentence(waiting, said.answer) if waiting and said.answer else "",
    )


def _of_update(name: str, update: ClusterUpdate | None, wave: int | None, said: Said) -> ClusterInRun:
    if update is None:
        return ClusterInRun(name, wave, NOT_STARTED)
    return ClusterInRun(
        name,
        wave,
        update.outcome or Phase.APPLYING,
        update.ended_at or update.started_at,
        None if update.what == "remove" else version_name(update.version, said.names),
        attempts=update.attempt,
        message=update.message,
    )


def progress_of(run: Rollout, *, now: datetime) -> Progress | None:
    """Count how far a run is; None once its placement is gone or does something else by now."""
    if run.placement is None or run.state != Rollout.State.RUNNING:
        return None
    rows = _bindings(run)
    if run.is_deletion:
        number = max(run.placement.deletion_number, rows.count())
        return Progress(number - rows.exclude(phase__in=EMPTY).count(), number, is_deletion=True)
    selected = rows.exclude(state=BindingState.UNSCHEDULED)
    there = selected.filter(running_version=run.version).filter(_is_ready(run.placement, now))
    return Progress(there.count(), selected.count())


def _is_ready(placement: Placement, now: datetime) -> Q:
    rolling = parse_placement(placement.document).spec.strategy.rolling_update or RollingUpdate()
    settled = now - timedelta(seconds=rolling.unavailable_period_seconds)
    return Q(phase=Phase.AVAILABLE) | Q(phase=Phase.SETTLING, timed_since__lte=settled)


def phases_of(bindings: Sequence[Binding]) -> dict[str, str]:
    """Give how far each of these bindings is, by cluster."""
    return {one.cluster_name: one.phase for one in bindings}
