"""Sync of a placement's rollout: start it, start its updates, end it (`rules/lifecycle.md#starts`)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import omit_empty
from fleetui.audit import (
    SYSTEM,
    record_event,
)
from fleetui.bulk import batched, claim_batch
from fleetui.prepared import PreparedQuery
from placements.engine.rollout import staged_update
from placements.engine.rollout.actions import (
    Action,
    RollingUpdateResult,
    RunPhase,
    StartUpdate,
)
from placements.engine.rollout.rolling_update import needs_run, next_actions
from placements.engine.rollout.staged_run import (
    CannotStart,
    RunStatus,
    StagedRunOutcome,
    StagedUpdateResult,
    StageReason,
    run_from_plain,
)
from placements.engine.rollout.staged_update import ended
from placements.engine.rollout.state import EMPTY, Phase, Suspension
from placements.engine.rollout.waves import (
    plan_waves,
    rollout_progress,
    staged_progress,
)
from placements.explain.rollouts import DELETED, finished_reason, result_document
from placements.explain.staged_updates import staged_document
from placements.manifests.binding import BindingState
from placements.manifests.staged_update import parse_staged_run
from placements.models import (
    ApprovalRequest,
    Binding,
    ClusterUpdate,
    Placement,
    ResourceSnapshot,
    Rollout,
    RolloutSample,
    StagedRun,
)
from placements.services.conditions import update_conditions
from placements.services.overrides.queries import applying_to
from placements.services.resources.queries import plain_objects, selection_for
from placements.services.resources.snapshots import take_resource_snapshot
from placements.services.results import PLACEMENT
from placements.services.rollout_state import (
    RolloutContext,
    Versions,
    load_rollout_context,
    plan_staged_run,
    staged_run_state,
)
from placements.services.rollouts.forecasts import (
    eta_of_next,
    staged_eta,
    update_forecast,
)
from placements.services.rollouts.removals import keep_leftovers
from placements.services.rollouts.staged_runs import (
    NO_PLAN,
    STAGED_RUN,
    why_facts,
)
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
STAGED_IDLE_RESYNC = timedelta(minutes=1)
"""While a staged run waits for a user, clusters that move to other stages are noticed this often."""
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
    return bool(_first_due.rows(now=now))


def _due(now: datetime) -> QuerySet[Placement]:
    is_due = Q(rollout_observed__lt=F("rollout_generation")) | Q(
        rollout_requeue_at__lte=now
    )
    is_free = Q(rollout_lease_expires_at=None) | Q(rollout_lease_expires_at__lte=now)
    return Placement.objects.filter(is_due & is_free)


_first_due = PreparedQuery(lambda now: _due(now).values_list("pk")[:1])


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
    requeue_at = None
    if not is_over:
        resync_at = now + (RESYNC if result.actions else IDLE_RESYNC)
        requeue_at = min(result.requeue_at or resync_at, resync_at)
    _mark_synced(context, requeue_at=requeue_at, now=now)
    _delete_left_behind(context, now=now)

    run = _run_of(context, now=now)
    if run is not None:
        start_actions(run, context, result.actions, now=now)
        _save_result(run, context, result, now=now)
        if is_over:
            end_run(run, Rollout.State.FINISHED, finished_reason(state), now=now)
    elif state.suspension is Suspension.NONE and not state.deletion:
        _mark_synced(context, requeue_at=None, now=now)
    if is_over and placement.deleting_since:
        _end_deletion(placement, now=now)


def _run_of(context: RolloutContext, *, now: datetime) -> Rollout | None:
    """Return the rollout of what is wanted now, which another one makes way for; None without work."""
    run, eta = running_rollout(context.placement), None
    wanted = (context.versions.whole, context.placement.deleting_since is not None)
    if run and (run.version, run.is_deletion) != wanted:
        end_run(run, Rollout.State.SUPERSEDED, "a newer version is wanted", now=now)
        eta = eta_of_next(run)
        run = None
    if run:
        _follow(run, context)
    state = context.state
    is_stopped = state.suspension is Suspension.STOPPED and not state.deletion
    if run is None and not is_stopped and needs_run(state):
        waves = [
            [action.cluster for action in wave.actions]
            for wave in plan_waves(state).waves
        ]
        run = create_run(context, waves, eta=eta, now=now)
    return run


def _follow(run: Rollout, context: RolloutContext) -> None:
    """Update revision and trigger of a rollout after an edit that needs no other version on the clusters."""
    placement, target = context.placement, context.target
    if not target or not target.is_latest or run.is_deletion:
        return
    if run.revision_number != placement.revision_with(target.number):
        run.revision_number = target.roll_out_with(placement)
        run.trigger = placement.trigger
        run.started_by = placement.triggered_by or SYSTEM
        run.save(update_fields=["revision_number", "trigger", "started_by"])


def _save_result(
    run: Rollout, context: RolloutContext, result: RollingUpdateResult, *, now: datetime
) -> None:
    """Save what a sync found, with a sample; nothing where it is as the sync before found it."""
    document = result_document(result)
    changed = Rollout.objects.filter(pk=run.pk)
    is_over = result.phase is RunPhase.FINISHED
    has_forecast = not is_over and update_forecast(
        run, context.placement, result, now=now
    )
    if not result.actions and not has_forecast:
        changed = changed.exclude(sync_result=document)
    if changed.update(sync_result=document, progress_version=F("progress_version") + 1):
        counts = asdict(rollout_progress(context.state, result))
        RolloutSample.objects.create(rollout=run, at=now, **counts)


def _end_deletion(placement: Placement, *, now: datetime) -> None:
    """Delete a placement that was removed from its clusters, and note those that may still hold it."""
    held = placement.bindings.exclude(phase__in=EMPTY)
    leftovers = sorted(held.values_list("cluster_name", flat=True))
    placement.bindings.all().delete()
    keep_leftovers(placement.full_name, leftovers, now=now)
    finish_deletion(placement, now=now)
    after = omit_empty(mayStillHold=leftovers) or None
    record_event("gone", PLACEMENT, placement.full_name, after=after, by=None, now=now)


def _delete_left_behind(context: RolloutContext, *, now: datetime) -> None:
    """Delete bindings of clusters that have left the fleet, unless they rejoined and were selected again."""
    if not context.left_behind:
        return
    gone = Binding.objects.filter(
        pk__in=[binding.pk for binding in context.left_behind],
        state=BindingState.UNSCHEDULED,
    )
    names = sorted(gone.values_list("cluster_name", flat=True))
    if names:
        gone.delete()
        keep_leftovers(context.placement.full_name, names, now=now)
        record_event(
            "left behind",
            PLACEMENT,
            context.placement.full_name,
            after={"clusters": names},
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
    run: Rollout,
    context: RolloutContext,
    actions: Sequence[Action],
    *,
    now: datetime,
) -> None:
    """Record what starts; the calls to the clusters are made later, outside of this transaction.

    The caller increments the version of the progress.
    """
    if not actions:
        return
    for part in batched([action.cluster for action in actions]):
        ClusterUpdate.objects.filter(
            rollout__placement=run.placement_id, cluster_name__in=part, outcome=""
        ).update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
    what = "release" if context.is_release else "remove"
    starts = [
        ClusterUpdate(
            rollout=run,
            cluster_name=action.cluster,
            what=action.reason if isinstance(action, StartUpdate) else what,
            version=action.version if isinstance(action, StartUpdate) else "",
            attempt=action.attempt,
            started_at=now,
        )
        for action in actions
    ]
    ClusterUpdate.objects.bulk_create(starts, batch_size=500)
    overrides = {
        name: [snapshot.pk for snapshot in applying]
        for name, applying in context.overrides.items()
    }
    _write_starts(context, actions, context.target, overrides, now=now)


def _write_starts(
    context: RolloutContext,
    actions: Sequence[Action],
    snapshot: ResourceSnapshot | None,
    overrides: Mapping[str, Sequence[int]],
    *,
    now: datetime,
) -> None:
    """Write what starts into the bindings; `overrides` are keys of override snapshots by cluster."""
    rows = {binding.cluster_name: binding for binding in context.bindings}
    versions, updates = context.versions, []
    for action in actions:
        content = None
        if isinstance(action, StartUpdate):
            cluster = action.cluster
            strategy = versions.strategy_on(cluster)
            keys = overrides.get(cluster, ())
            content = Content(action.version, snapshot, keys, strategy)
        binding = rows.get(action.cluster)
        if binding is not None:
            updates.append(
                build_updates(binding, content, attempt=action.attempt, now=now)
            )
    if updates:
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
        revision_number=target.roll_out_with(placement) if target else None,
        version=context.versions.whole,
        is_deletion=placement.deleting_since is not None,
        trigger=placement.trigger,
        started_at=now,
        started_by=started_by,
        waves=list(map(list, waves)),
        eta=dict(eta or {}),
    )
    name, after = f"{run.placement_name}/{run.number}", {"waves": run.waves[:20]}
    record_event("started", ROLLOUT, name, after=after, by=None, now=now)
    return run


def end_run(
    run: Rollout,
    state: Rollout.State,
    reason: str,
    *,
    now: datetime,
) -> None:
    """End a rollout in progress; what it started is still observed until it ends."""
    ended = Rollout.objects.filter(pk=run.pk, state=Rollout.State.RUNNING)
    if ended.update(
        state=state,
        ended_at=now,
        ended_reason=reason,
        progress_version=run.progress_version + 1,
    ):
        open_starts = ClusterUpdate.objects.filter(rollout=run, outcome="")
        if state == Rollout.State.FINISHED:
            # What cannot be observed became available by time alone.
            untrackable = Binding.objects.filter(
                placement=run.placement_id, phase=Phase.APPLIED
            )
            open_starts.filter(
                cluster_name__in=untrackable.values("cluster_name")
            ).update(outcome=ClusterUpdate.Outcome.AVAILABLE, ended_at=now)
        open_starts.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
        name, after = f"{run.placement_name}/{run.number}", {"because": reason}
        record_event(state, ROLLOUT, name, after=after, by=None, now=now)


_STORED = (
    "plan",
    "sync_result",
    "eta",
    "status",
    "ended_at",
    "resource_snapshot_id",
    "resource_number",
    "revision_number",
    "overrides",
)


def sync_staged_runs(context: RolloutContext, *, now: datetime) -> datetime | None:
    """Sync the active runs of a placement, oldest first; return when to sync again.

    Nothing is done while the placement is paused. Raise RunChanged.
    """
    if context.placement.paused_since:
        return None
    times: list[datetime | None] = []
    active = StagedRun.objects.filter(placement=context.placement, ended_at=None)
    runs = list(active.order_by("pk").prefetch_related("approvals"))
    for run in runs:
        if times:  # what an earlier run has just started has to be visible to this one
            context = load_rollout_context(context.placement, now=now)
        others = [other for other in runs if other is not run]
        times.append(_sync_run(run, context, others, now=now))
    return min((time for time in times if time), default=None)


def _sync_run(
    run: StagedRun,
    context: RolloutContext,
    others: Iterable[StagedRun],
    *,
    now: datetime,
) -> datetime | None:
    if run.plan is None:
        initialised = _initialise(run, context, now=now)
        if initialised is None:
            return now + RESYNC
        _store(run, initialised, now=now)
    plan = run_from_plain(run.plan)
    if plan.outcome:
        return None
    result = staged_update.next_actions(
        staged_run_state(run, plan, context, others=others)
    )
    _store(run, result, now=now)
    _write_starts(
        context, result.actions, run.resource_snapshot, run.overrides, now=now
    )
    _record_progress(run, context, result, now=now)
    if result.run.outcome is StagedRunOutcome.SUCCEEDED:
        names = [step.name for step in result.run.deletions.steps]
        _delete_removed(context, names, now=now)
    if result.run.outcome:
        return None
    is_idle = result.status in (
        RunStatus.INITIALISED,
        RunStatus.WAITING,
        RunStatus.STOPPED,
    )
    resync_at = now + (STAGED_IDLE_RESYNC if is_idle else RESYNC)
    return min(result.requeue_at or resync_at, resync_at)


def _record_progress(
    run: StagedRun,
    context: RolloutContext,
    result: StagedUpdateResult,
    *,
    now: datetime,
) -> None:
    """Keep a sample of the counts that have changed, and request the approvals that are due."""
    counts = asdict(staged_progress(context.state, result))
    if counts != run.samples.order_by("-pk").values(*counts).first():
        RolloutSample.objects.create(staged_run=run, at=now, **counts)
    for approval in result.approvals:
        request, is_new = ApprovalRequest.objects.get_or_create(
            run=run,
            stage=approval.stage,
            side=approval.when,
            defaults={"requested_at": now},
        )
        if is_new:
            record_event(
                "approval requested",
                STAGED_RUN,
                run.full_name,
                after={"request": str(request)},
                by=None,
                now=now,
            )


def _delete_removed(
    context: RolloutContext, names: Sequence[str], *, now: datetime
) -> None:
    """Delete the bindings of the clusters that a run removed a placement from, or found to have left."""
    gone = {binding.cluster_name for binding in context.left_behind}
    rows = Binding.objects.filter(
        placement=context.placement, state=BindingState.UNSCHEDULED
    )
    for some in batched(names):
        part = rows.filter(cluster_name__in=some)
        part.filter(phase__in=EMPTY).delete()
        part.filter(cluster_name__in=gone).delete()
    if left := sorted(gone.intersection(names)):
        name, after = context.placement.full_name, {"clusters": left}
        record_event("left behind", PLACEMENT, name, after=after, by=None, now=now)


def _initialise(
    run: StagedRun, context: RolloutContext, *, now: datetime
) -> StagedUpdateResult | None:
    """Return the plan of a run that starts or cannot; None while it has to wait.

    It waits for a decision, for valid resource selectors (until then it counts as not decided), and for the
    snapshot that it names. `initialising_sentence` in `queries.py` has the words.
    """
    initial = plan_staged_run(run, context, {})
    if isinstance(initial, CannotStart):
        failed = NO_PLAN.end(StagedRunOutcome.FAILED, now, *initial.reasons)
        return ended(failed) if initial.is_final else None
    placement = context.placement
    target = run.resource_snapshot or _snapshot_for(run, placement, now=now)
    if target is None:
        return None
    if not target.objects_count and all(
        binding.phase in EMPTY for binding in context.bindings
    ):
        return ended(
            NO_PLAN.end(StagedRunOutcome.FAILED, now, StageReason("no-resources"))
        )
    overrides = applying_to(placement.full_name, target)
    versions = Versions.of(target, context.manifest, overrides)
    names = [step.name for stage in initial.stages for step in stage.steps]
    plan = plan_staged_run(
        run, context, {name: versions.of_cluster(name) for name in names}
    )
    run.resource_snapshot, run.resource_number = target, target.number
    run.revision_number = target.roll_out_with(placement)
    run.overrides = {
        name: [override.pk for override in overrides[name]]
        for name in names
        if name in overrides
    }
    if isinstance(plan, CannotStart):
        return None
    return StagedUpdateResult(plan, RunStatus.INITIALISED)


def _snapshot_for(
    run: StagedRun, placement: Placement, *, now: datetime
) -> ResourceSnapshot | None:
    """Return the snapshot that a run rolls out, which it takes itself unless it names one.

    None where it has to wait for that, or where the resource selectors are invalid.
    """
    if index := parse_staged_run(run.document).spec.resource_snapshot_index:
        # Named before it existed. Only runs make snapshots: the first one is made by the run that names it.
        snapshots = ResourceSnapshot.objects.filter(placement=placement)
        target = snapshots.filter(number=int(index)).first()
        if target is not None or snapshots.exists():
            return target
    by = run.started_by or run.created_by or SYSTEM
    try:
        selected = plain_objects(selection_for(placement).objects)
        return take_resource_snapshot(placement, selected, by=by, now=now)
    except InvalidManifest:
        return None


def _store(run: StagedRun, result: StagedUpdateResult, *, now: datetime) -> None:
    """Write the progress of a run. Raise RunChanged if it has changed meanwhile."""
    before, eta = (run.plan, run.sync_result, run.status), run.eta
    expected = run.progress_version
    run.plan, run.sync_result, run.status = (
        result.run.to_plain(),
        staged_document(result),
        result.status,
    )
    run.ended_at = result.run.ended_at
    run.eta = staged_eta(run, result, now=now)
    has_moved = before != (run.plan, run.sync_result, run.status)
    run.progress_version += has_moved or run.eta.get("left") != eta.get("left")
    rows = StagedRun.objects.filter(pk=run.pk, progress_version=expected)
    columns = {}
    if run.progress_version != expected:
        columns = {name: getattr(run, name) for name in _STORED}
    if not rows.update(progress_version=run.progress_version, **columns):
        raise RunChanged
    if run.ended_at:
        after = why_facts(result.run.reasons)
        record_event(
            run.status,
            STAGED_RUN,
            run.full_name,
            after=after,
            is_warning=run.status == RunStatus.FAILED,
            by=None,
            now=now,
        )
