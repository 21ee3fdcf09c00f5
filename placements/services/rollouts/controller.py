"""Sync of a placement's rollout: start it, start its updates, end it (`rules/lifecycle.md#starts`)."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from fleetui.audit import SYSTEM, AuditEvent, record
from fleetui.bulk import batched, claim_batch
from placements.engine.rollout.actions import (
    Action,
    Remove,
    RollingUpdateResult,
    RunPhase,
)
from placements.engine.rollout.rolling_update import needs_run, next_actions
from placements.engine.rollout.state import EMPTY, Phase, Suspension
from placements.engine.rollout.waves import plan_waves, rollout_progress
from placements.explain.rollouts import DELETED, finished_reason, result_document
from placements.manifests.binding import BindingState
from placements.models import Binding, ClusterUpdate, Placement, Rollout, RolloutSample
from placements.services.conditions import update_conditions
from placements.services.results import PLACEMENT
from placements.services.rollout_state import RolloutContext, load_rollout_context
from placements.services.rollouts.forecasts import eta_of_next, update_forecast
from placements.services.rollouts.orphans import keep_leftovers
from placements.services.rollouts.staged_controller import sync_staged_runs
from placements.services.rollouts.starts import (
    Content,
    RunChanged,
    build_updates,
    save_updates,
)
from placements.services.traces import forget_placements


def finish_deletion(placement: Placement, *, now: datetime) -> bool:
    """Delete the row of a placement under deletion once no cluster holds anything of it.

    Its rollout ends with it: without a placement no action could end it.
    """
    if placement.bindings.exclude(phase__in=EMPTY).exists():
        return False
    if run := running_rollout(placement):
        state = Rollout.State.FINISHED if run.is_deletion else Rollout.State.SUPERSEDED
        end_run(run, state, DELETED, now=now)
    placement.bindings.all().delete()
    placement.delete()
    if placement.is_demo:
        forget_placements([placement.full_name])
    return True


ROLLOUT = "rollout"
LEASE = timedelta(seconds=10)
RESYNC = timedelta(seconds=10)
"""While a rollout is in progress it is synced this often: clusters become unreachable without an event."""
IDLE_RESYNC = timedelta(seconds=30)
"""One that starts nothing is synced less often: what it waits for causes a sync."""
LARGE = 1_000
PAUSE = timedelta(microseconds=150)
"""So long a placement on more than LARGE clusters rests after a sync, for each of them.

A sync reads all of them, and results come in hundreds: without the pause it would be synced after each.
"""
BATCH = 20


def sync_due_rollouts(*, now: datetime) -> int:
    """Sync up to 20 rollouts that are due; return how many.

    They are claimed by a conditional update. Two workers that claim in the same microsecond may both have
    one; syncing it twice does no harm. Each is synced even if another one raises; the error is raised at the
    end, and the placement it belongs to is tried again when its lease is over.
    """
    oldest = F("rollout_lease_expires_at").asc(nulls_first=True)
    ids = claim_batch(
        _due(now), oldest, size=BATCH, rollout_lease_expires_at=now + LEASE
    )
    with ExitStack() as stack:
        for placement_id in reversed(ids):
            stack.callback(sync_rollout, placement_id, now=now)
    return len(ids)


def is_due(*, now: datetime) -> bool:
    """Return whether a sync is due that no worker has claimed."""
    return _due(now).exists()


def _due(now: datetime) -> QuerySet[Placement]:
    is_due = Q(rollout_observed__lt=F("rollout_generation")) | Q(
        rollout_requeue_at__lte=now
    )
    is_free = Q(rollout_lease_expires_at=None) | Q(rollout_lease_expires_at__lte=now)
    return Placement.objects.filter(is_due & is_free)


def sync_rollout(placement_id: int, *, now: datetime) -> RollingUpdateResult | None:
    """Sync one rollout and start what may start; None where there is none, or staged runs do so."""
    placement = Placement.objects.filter(pk=placement_id).first()
    if placement is None:
        return None
    context = load_rollout_context(placement, now=now)
    is_staged = context.is_staged and placement.deleting_since is None
    result = None if is_staged else next_actions(context.state)
    try:
        with transaction.atomic():
            if result:
                _save_rolling(context, result, now=now)
            else:
                _mark_synced(context, requeue_at=None, now=now)
                run = running_rollout(context.placement)
                if run:
                    end_run(
                        run,
                        Rollout.State.SUPERSEDED,
                        "staged runs update this placement now",
                        now=now,
                    )
                requeue_at = sync_staged_runs(context, now=now)
                Placement.objects.filter(pk=context.placement.pk).update(
                    rollout_requeue_at=requeue_at
                )
            if placement.deleting_since is None:
                update_conditions(context, now=now)
    except RunChanged:
        Placement.objects.filter(pk=placement_id).update(rollout_lease_expires_at=None)
        return None
    return result


def _save_rolling(
    context: RolloutContext, result: RollingUpdateResult, *, now: datetime
) -> None:
    placement, state = context.placement, context.state
    is_over = result.phase is RunPhase.FINISHED
    resync_at = now + (RESYNC if result.actions else IDLE_RESYNC)
    requeue_at = min(result.requeue_at or resync_at, resync_at)
    _mark_synced(context, requeue_at=None if is_over else requeue_at, now=now)
    _delete_left_behind(context, now=now)

    run, eta = running_rollout(placement), None
    if run and (run.version, run.is_deletion) != (
        context.version,
        placement.deleting_since is not None,
    ):
        end_run(run, Rollout.State.SUPERSEDED, "a newer version is wanted", now=now)
        eta = eta_of_next(run)
        run = None
    is_stopped = state.suspension is Suspension.STOPPED and not state.deletion
    if run is None and not is_stopped and needs_run(state):
        waves = [
            [action.cluster for action in wave.actions]
            for wave in plan_waves(state).waves
        ]
        run = create_run(context, waves, eta=eta, now=now)

    if run is not None:
        start_actions(run, context, result.actions, now=now)
        document = result_document(result)
        changed = Rollout.objects.filter(pk=run.pk)
        has_forecast = not is_over and update_forecast(run, placement, result, now=now)
        if not result.actions and not has_forecast:
            changed = changed.exclude(sync_result=document)
        if changed.update(
            sync_result=document, progress_version=F("progress_version") + 1
        ):
            counts = asdict(rollout_progress(context.state, result))
            RolloutSample.objects.create(rollout=run, at=now, **counts)
        if is_over:
            end_run(run, Rollout.State.FINISHED, finished_reason(state), now=now)
    elif state.suspension is Suspension.NONE and not state.deletion:
        _mark_synced(context, requeue_at=None, now=now)
    if is_over and placement.deleting_since:
        leftovers = sorted(
            placement.bindings.exclude(phase__in=EMPTY).values_list(
                "cluster_name", flat=True
            )
        )
        placement.bindings.all().delete()
        keep_leftovers(placement.full_name, leftovers, now=now)
        finish_deletion(placement, now=now)
        after = {"mayStillHold": leftovers} if leftovers else None
        record(
            AuditEvent("gone", PLACEMENT, placement.full_name, after=after),
            by=None,
            now=now,
        )


def _delete_left_behind(context: RolloutContext, *, now: datetime) -> None:
    """Delete bindings of clusters that have left the fleet, unless they rejoined and were selected again."""
    if not context.left_behind:
        return
    rows = Binding.objects.filter(
        pk__in=[binding.pk for binding in context.left_behind]
    )
    gone = rows.filter(state=BindingState.UNSCHEDULED)
    names = sorted(gone.values_list("cluster_name", flat=True))
    if names:
        gone.delete()
        keep_leftovers(context.placement.full_name, names, now=now)
        after = {"clusters": names}
        record(
            AuditEvent(
                "left behind", PLACEMENT, context.placement.full_name, after=after
            ),
            by=None,
            now=now,
        )


def _mark_synced(
    context: RolloutContext, *, requeue_at: datetime | None, now: datetime
) -> None:
    """Record that the sync is done. Raise RunChanged if a user changed the placement meanwhile."""
    placement, count = context.placement, len(context.bindings)
    unchanged = Placement.objects.filter(
        pk=placement.pk,
        revision=placement.revision,
        rollout_observed__in=(placement.rollout_observed, placement.rollout_generation),
        paused_since=placement.paused_since,
        is_stopped=placement.is_stopped,
        pinned_snapshot=placement.pinned_snapshot,
    )
    rest_until = now + count * PAUSE if count > LARGE else now
    if not unchanged.update(
        rollout_observed=placement.rollout_generation,
        rollout_requeue_at=requeue_at,
        rollout_lease_expires_at=rest_until,
    ):
        raise RunChanged


def start_actions(
    run: Rollout, context: RolloutContext, actions: Sequence[Action], *, now: datetime
) -> None:
    """Record what starts; the calls to the clusters are made later, outside of this transaction.

    The caller increments the version of the progress.
    """
    if not actions:
        return
    names = [action.cluster for action in actions]
    for part in batched(names):
        earlier = ClusterUpdate.objects.filter(
            rollout__placement=run.placement_id, cluster_name__in=part, outcome=""
        )
        earlier.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
    rows = {binding.cluster_name: binding for binding in context.bindings}
    starts, updates = [], []
    for action in actions:
        content, what = None, "release" if context.is_release else "remove"
        if not isinstance(action, Remove):
            overrides = [one.pk for one in context.overrides.get(action.cluster, ())]
            strategy = (
                context.versions.strategy_on(action.cluster)
                if context.versions
                else None
            )
            content, what = (
                Content(action.version, context.target, overrides, strategy),
                action.reason,
            )
        starts.append(
            ClusterUpdate(
                rollout=run,
                cluster_name=action.cluster,
                what=what,
                version=content.version if content else "",
                attempt=action.attempt,
                started_at=now,
            )
        )
        updates.append(
            build_updates(
                rows[action.cluster], content, attempt=action.attempt, now=now
            )
        )
    ClusterUpdate.objects.bulk_create(starts, batch_size=500)
    save_updates(updates, context, now=now)


def running_rollout(placement: Placement) -> Rollout | None:
    """Return the rollout in progress, without its long columns: it is read in every sync."""
    running = Rollout.objects.filter(placement=placement, state=Rollout.State.RUNNING)
    return running.defer("waves", "sync_result").first()


def create_run(
    context: RolloutContext,
    waves: Sequence[Sequence[str]],
    *,
    now: datetime,
    eta: Mapping[str, Any] | None = None,
) -> Rollout:
    placement, target = context.placement, context.target
    started_by = placement.triggered_by or SYSTEM
    if (
        started_by == SYSTEM
        and target
        and not placement.rollouts.filter(resource_snapshot=target).exists()
    ):
        started_by = (
            target.created_by
        )  # what the system triggered meanwhile is not why these are rolled out
    placement.runs_made += 1
    Placement.objects.filter(pk=placement.pk).update(runs_made=placement.runs_made)
    run = Rollout.objects.create(
        placement=placement,
        placement_name=placement.full_name,
        number=placement.runs_made,
        resource_snapshot=target,
        resource_number=target.number if target else None,
        version=context.version,
        is_deletion=placement.deleting_since is not None,
        trigger=placement.trigger,
        started_at=now,
        started_by=started_by,
        waves=list(map(list, waves)),
        eta=dict(eta or {}),
    )
    name, after = f"{run.placement_name}/{run.number}", {"waves": run.waves[:20]}
    record(AuditEvent("started", ROLLOUT, name, after=after), by=None, now=now)
    return run


def end_run(run: Rollout, state: Rollout.State, reason: str, *, now: datetime) -> None:
    """End a rollout in progress; what it started is still observed until it ends."""
    ended = Rollout.objects.filter(pk=run.pk, state=Rollout.State.RUNNING)
    if ended.update(
        state=state,
        ended_at=now,
        ended_reason=reason,
        progress_version=run.progress_version + 1,
    ):
        open_starts = ClusterUpdate.objects.filter(rollout=run, outcome="")
        if (
            state == Rollout.State.FINISHED
        ):  # what cannot be observed became available by time alone
            untrackable = Binding.objects.filter(
                placement=run.placement_id, phase=Phase.APPLIED
            )
            applied = open_starts.filter(
                cluster_name__in=untrackable.values("cluster_name")
            )
            applied.update(outcome=ClusterUpdate.Outcome.AVAILABLE, ended_at=now)
        open_starts.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
        name, after = f"{run.placement_name}/{run.number}", {"because": reason}
        record(AuditEvent(state, ROLLOUT, name, after=after), by=None, now=now)
