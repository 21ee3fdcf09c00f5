"""Runs begin and end."""

from collections.abc import Sequence
from datetime import datetime

from fleetui.events import SYSTEM, Happening, record
from placements.models import ClusterUpdate, Placement, Rollout
from placements.standing import Standing

ROLLOUT = "rollout"


def running_rollout(placement: Placement) -> Rollout | None:
    """Give the run that is under way, without what is long in it: it is asked for at every look."""
    running = Rollout.objects.filter(placement=placement, state=Rollout.State.RUNNING)
    return running.defer("waves", "answer").first()


def begin_run(standing: Standing, waves: Sequence[Sequence[str]], *, now: datetime) -> Rollout:
    """Begin a run, inside the caller's transaction."""
    placement, target = standing.placement, standing.target
    placement.runs_made += 1
    Placement.objects.filter(pk=placement.pk).update(runs_made=placement.runs_made)
    run = Rollout.objects.create(
        placement=placement,
        placement_name=placement.name,
        number=placement.runs_made,
        resource_snapshot=target,
        resource_number=target.number if target else None,
        version=standing.version,
        is_deletion=placement.deleting_since is not None,
        because=placement.asked_because,
        started_at=now,
        started_by=placement.asked_by or SYSTEM,
        waves=list(map(list, waves)),
    )
    record(Happening("began", ROLLOUT, _name(run), after={"waves": run.waves[:20]}), by=None, now=now)
    return run


def end_run(run: Rollout, state: Rollout.State, because: str, *, now: datetime) -> None:
    """End a run that is under way; what it started is observed to its end all the same."""
    ended = Rollout.objects.filter(pk=run.pk, state=Rollout.State.RUNNING)
    if ended.update(state=state, ended_at=now, ended_because=because, changes=run.changes + 1):
        if state != Rollout.State.FINISHED:
            open_starts = ClusterUpdate.objects.filter(rollout=run, outcome="")
            open_starts.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
        record(Happening(state, ROLLOUT, _name(run), after={"because": because}), by=None, now=now)


def _name(run: Rollout) -> str:
    return f"{run.placement_name}/{run.number}"
