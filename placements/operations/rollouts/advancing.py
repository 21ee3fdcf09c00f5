"""One look at a placement's rollout: its run begins or ends, what may start does (lifecycle A.3 to A.8)."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from fleetui.events import Happening, record
from placements.explain.rollout_document import answer_facts
from placements.models import Binding, ClusterUpdate, Placement, Rollout, RolloutPoint
from placements.operations.placements import PLACEMENT, finish_deletion
from placements.operations.rollouts.noting import note_conditions
from placements.operations.rollouts.runs import begin_run, end_run, running_rollout
from placements.operations.rollouts.starting import Content, RolloutMovedError, save_started, started
from placements.operations.staged.advancing import RunMovedError, advance_runs
from placements.rollout.answer import Action, Answer, Remove, Verdict
from placements.rollout.plan import plan
from placements.rollout.rolling import next_actions
from placements.rollout.state import EMPTY, Hold
from placements.rollout.tally import tally_of
from placements.rollout.work import needs_run
from placements.scheduling.bindings import BindingState
from placements.standing import Standing, standing_of

LEASE = timedelta(seconds=10)
NEXT_LOOK = timedelta(seconds=10)
"""While a run is under way it is looked at this often: clusters fall silent by themselves."""
LARGE = 1_000
PAUSE = timedelta(microseconds=150)
"""So long a placement on more than LARGE clusters rests after a look, for each of them.

A look reads all of them, and answers come in hundreds: without the pause it would be looked at after each.
"""
BATCH = 20


def advance_due(*, now: datetime) -> int:
    """Look at up to 20 rollouts that are due; tell how many."""
    claimed = _claim(now=now)
    for placement_id in claimed:
        advance(placement_id, now=now)
    return len(claimed)


def _claim(*, now: datetime) -> list[int]:
    """Take on due rollouts by a conditional update.

    Two workers that do so in the same microsecond may both have one; looking at it twice does no harm.
    """
    is_due = Q(advance_answered__lt=F("advance_asked")) | Q(advance_at__lte=now)
    is_free = Q(advance_lease_until=None) | Q(advance_lease_until__lt=now)
    due, lease = Placement.objects.filter(is_due & is_free), now + LEASE
    ids = list(due.order_by("pk").values_list("pk", flat=True)[:BATCH])
    taken = due.filter(pk__in=ids).update(advance_lease_until=lease) if ids else 0
    if taken == len(ids):
        return ids
    mine = Placement.objects.filter(pk__in=ids, advance_lease_until=lease)
    return list(mine.order_by("pk").values_list("pk", flat=True))


def advance(placement_id: int, *, now: datetime) -> Answer | None:
    """Look at one rollout and start what may start; None where nothing is, or staged runs are, to do so."""
    placement = Placement.objects.filter(pk=placement_id).first()
    if placement is None:
        return None
    standing = standing_of(placement, now=now)
    is_staged = standing.is_staged and placement.deleting_since is None
    answer = None if is_staged else next_actions(standing.state)
    try:
        with transaction.atomic():
            if answer:
                _write(standing, answer, now=now)
            else:
                _write_staged(standing, now=now)
            if placement.deleting_since is None:
                note_conditions(standing, now=now)
    except (RolloutMovedError, RunMovedError):
        Placement.objects.filter(pk=placement_id).update(advance_lease_until=None)
        return None
    return answer


def _write_staged(standing: Standing, *, now: datetime) -> None:
    """Leave the placement to its staged runs; its row is locked before what hangs on it."""
    _rest(standing, at=None, now=now)
    run = running_rollout(standing.placement)
    if run:
        end_run(run, Rollout.State.SUPERSEDED, "staged runs update this placement now", now=now)
    look = advance_runs(standing, now=now)
    Placement.objects.filter(pk=standing.placement.pk).update(advance_at=look)


def _write(standing: Standing, answer: Answer, *, now: datetime) -> None:
    placement = standing.placement
    is_over = answer.verdict is Verdict.FINISHED
    next_look = min(answer.until or now + NEXT_LOOK, now + NEXT_LOOK)
    _rest(standing, at=None if is_over else next_look, now=now)
    _leave_behind(standing, now=now)
    run = _run_for(standing, now=now)
    if run is not None:
        _start(run, standing, answer.actions, now=now)
        _tell(run, standing, answer, now=now)
        if is_over:
            end_run(run, Rollout.State.FINISHED, "everything is as wanted", now=now)
    elif standing.state.hold is Hold.NONE and not standing.state.deletion:
        _rest(standing, at=None, now=now)
    if is_over and placement.deleting_since:
        _let_go(placement, now=now)


def _leave_behind(standing: Standing, *, now: datetime) -> None:
    """Let go of what stays on clusters that have left the fleet; one that is back and picked again stays."""
    if not standing.left_behind:
        return
    rows = Binding.objects.filter(pk__in=[binding.pk for binding in standing.left_behind])
    gone = rows.filter(state=BindingState.UNSCHEDULED)
    names = sorted(gone.values_list("cluster_name", flat=True))
    if names:
        gone.delete()
        after = {"clusters": names}
        record(Happening("left behind", PLACEMENT, standing.placement.name, after=after), by=None, now=now)


def _rest(standing: Standing, *, at: datetime | None, now: datetime) -> None:
    """Note that the look is done, unless somebody laid hands on the placement meanwhile."""
    placement, count = standing.placement, len(standing.bindings)
    unmoved = Placement.objects.filter(
        pk=placement.pk,
        revision=placement.revision,
        advance_answered__in=(placement.advance_answered, placement.advance_asked),
        paused_since=placement.paused_since,
        is_stopped=placement.is_stopped,
        held_number=placement.held_number,
    )
    until = now + count * PAUSE if count > LARGE else None
    done = {"advance_answered": placement.advance_asked, "advance_at": at, "advance_lease_until": until}
    if not unmoved.update(**done):
        raise RolloutMovedError


def _run_for(standing: Standing, *, now: datetime) -> Rollout | None:
    """Give the run that carries what is wanted: the present one, a new one, or none where none is needed."""
    run = running_rollout(standing.placement)
    if run and (run.version, run.is_deletion) != _carried(standing):
        end_run(run, Rollout.State.SUPERSEDED, "something newer is wanted", now=now)
        run = None
    is_stopped = standing.state.hold is Hold.STOPPED and not standing.state.deletion
    if run is None and not is_stopped and needs_run(standing.state):
        waves = [[action.cluster for action in wave.actions] for wave in plan(standing.state).waves]
        run = begin_run(standing, waves, now=now)
    return run


def _carried(standing: Standing) -> tuple[str, bool]:
    return standing.version, standing.placement.deleting_since is not None


def _tell(run: Rollout, standing: Standing, answer: Answer, *, now: datetime) -> None:
    """Write down what may happen and why not more, and how the clusters stand, where that is news."""
    facts = answer_facts(answer)
    moved = Rollout.objects.filter(pk=run.pk).exclude(answer=facts)
    if moved.update(answer=facts, changes=F("changes") + 1):
        RolloutPoint.objects.create(rollout=run, at=now, **asdict(tally_of(standing.state, answer)))


def _start(run: Rollout, standing: Standing, actions: Iterable[Action], *, now: datetime) -> None:
    """Write down what starts; the calls to the clusters are made later, outside of this transaction."""
    listed = list(actions)
    if not listed:
        return
    rows = {binding.cluster_name: binding for binding in standing.bindings}
    _end_earlier_starts(run, [action.cluster for action in listed], now=now)
    updates = [_update(run, action, now=now) for action in listed]
    ClusterUpdate.objects.bulk_create(updates, batch_size=500)
    starts = [
        started(rows[one.cluster], _content(one, standing), attempt=one.attempt, now=now) for one in listed
    ]
    save_started(starts, standing)
    Rollout.objects.filter(pk=run.pk).update(changes=F("changes") + 1)


def _content(action: Action, standing: Standing) -> Content | None:
    if isinstance(action, Remove):
        return None
    overrides = [one.pk for one in standing.overrides.get(action.cluster, ())]
    return Content(action.version, standing.target, overrides)


def _end_earlier_starts(run: Rollout, names: list[str], *, now: datetime) -> None:
    for start in range(0, len(names), 500):
        earlier = ClusterUpdate.objects.filter(
            rollout__placement=run.placement, cluster_name__in=names[start : start + 500], outcome=""
        )
        earlier.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)


def _update(run: Rollout, action: Action, *, now: datetime) -> ClusterUpdate:
    return ClusterUpdate(
        rollout=run,
        cluster_name=action.cluster,
        what="remove" if isinstance(action, Remove) else action.why,
        version="" if isinstance(action, Remove) else action.version,
        attempt=action.attempt,
        started_at=now,
    )


def _let_go(placement: Placement, *, now: datetime) -> None:
    """End the row of a placement whose deletion has nothing left to remove."""
    held = sorted(placement.bindings.exclude(phase__in=EMPTY).values_list("cluster_name", flat=True))
    placement.bindings.all().delete()
    finish_deletion(placement)
    after = {"mayStillHold": held} if held else None
    record(Happening("gone", PLACEMENT, placement.name, after=after), by=None, now=now)
