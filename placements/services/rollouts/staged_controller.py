"""Sync of the staged runs of a placement (`rules/lifecycle.md#staged-update-runs`)."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.audit import SYSTEM, AuditEvent, record
from fleetui.bulk import batched
from placements.engine.rollout.actions import StartUpdate
from placements.engine.rollout.staged_run import (
    CannotStart,
    RunStatus,
    StagedRunOutcome,
    StagedUpdateResult,
    StageReason,
    run_from_plain,
)
from placements.engine.rollout.staged_update import ended, next_actions
from placements.engine.rollout.state import EMPTY
from placements.engine.rollout.waves import staged_progress
from placements.explain.staged_updates import staged_document
from placements.manifests.binding import BindingState
from placements.manifests.staged_update import parse_staged_run
from placements.models import (
    ApprovalRequest,
    Binding,
    ResourceSnapshot,
    RolloutSample,
    StagedRun,
)
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
from placements.services.rollouts.forecasts import staged_eta
from placements.services.rollouts.staged_runs import NO_PLAN, STAGED_RUN
from placements.services.rollouts.starts import (
    Content,
    RunChanged,
    build_updates,
    save_updates,
)

BUSY_RESYNC = timedelta(seconds=10)
IDLE_RESYNC = timedelta(minutes=1)
"""While a run waits for a user, clusters that move to other stages are noticed this often."""
_STORED = (
    "plan",
    "sync_result",
    "eta",
    "status",
    "ended_at",
    "resource_snapshot_id",
    "resource_number",
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
            return now + BUSY_RESYNC
        _store(run, initialised, now=now)
    plan = run_from_plain(run.plan)
    if plan.outcome:
        return None
    result = next_actions(staged_run_state(run, plan, context, others=others))
    _store(run, result, now=now)
    _start_actions(run, context, result, now=now)
    _request_approvals(run, result, now=now)
    counts = asdict(staged_progress(context.state, result))
    last = run.samples.order_by("-pk").values(*counts).first()
    if counts != last:
        RolloutSample.objects.create(staged_run=run, at=now, **counts)
    if result.run.outcome is StagedRunOutcome.SUCCEEDED:
        names = [step.name for step in result.run.deletions.steps]
        gone = {binding.cluster_name for binding in context.left_behind}
        rows = Binding.objects.filter(
            placement=context.placement, state=BindingState.UNSCHEDULED
        )
        for some in batched(names):
            part = rows.filter(cluster_name__in=some)
            part.filter(phase__in=EMPTY).delete()
            part.filter(cluster_name__in=gone).delete()
        left = sorted(gone.intersection(names))
        if left:
            event = AuditEvent(
                "left behind",
                PLACEMENT,
                context.placement.full_name,
                after={"clusters": left},
            )
            record(event, by=None, now=now)
    if result.run.outcome:
        return None
    is_idle = result.status in (
        RunStatus.INITIALISED,
        RunStatus.WAITING,
        RunStatus.STOPPED,
    )
    resync_at = now + (IDLE_RESYNC if is_idle else BUSY_RESYNC)
    return min(result.requeue_at or resync_at, resync_at)


def _request_approvals(
    run: StagedRun, result: StagedUpdateResult, *, now: datetime
) -> None:
    for approval in result.approvals:
        request, is_new = ApprovalRequest.objects.get_or_create(
            run=run,
            stage=approval.stage,
            side=approval.when,
            defaults={"requested_at": now},
        )
        if is_new:
            after = {"request": str(request)}
            record(
                AuditEvent(
                    "approval requested", STAGED_RUN, run.full_name, after=after
                ),
                by=None,
                now=now,
            )


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
    placement, target = context.placement, run.resource_snapshot
    index = parse_staged_run(run.document).spec.resource_snapshot_index
    if target is None and index:
        # Named before it existed. Only runs make snapshots: the first one is made by the run that names it.
        snapshots = ResourceSnapshot.objects.filter(placement=placement)
        target = snapshots.filter(number=int(index)).first()
        if target is None and snapshots.exists():
            return None
    if target is None:
        by = run.started_by or run.created_by or SYSTEM
        try:
            selected = plain_objects(selection_for(placement).objects)
            target = take_resource_snapshot(placement, selected, by=by, now=now)
        except InvalidManifest:  # invalid resource selectors
            return None
    if not target.objects_count and all(one.phase in EMPTY for one in context.bindings):
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
    run.overrides = {
        name: [one.pk for one in overrides[name]] for name in names if name in overrides
    }
    return (
        None
        if isinstance(plan, CannotStart)
        else StagedUpdateResult(plan, RunStatus.INITIALISED)
    )


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
    columns = (
        {name: getattr(run, name) for name in _STORED}
        if run.progress_version != expected
        else {}
    )
    if not rows.update(progress_version=run.progress_version, **columns):
        raise RunChanged
    if run.ended_at:
        after = (
            {"why": [reason.code for reason in result.run.reasons]}
            if result.run.reasons
            else None
        )
        has_failed = run.status == RunStatus.FAILED
        event = AuditEvent(
            run.status, STAGED_RUN, run.full_name, after=after, is_warning=has_failed
        )
        record(event, by=None, now=now)


def _start_actions(
    run: StagedRun,
    context: RolloutContext,
    result: StagedUpdateResult,
    *,
    now: datetime,
) -> None:
    """Record what starts; the calls to the clusters are made later, outside of this transaction."""
    rows = {binding.cluster_name: binding for binding in context.bindings}
    updates = []
    for action in result.actions:
        content = None
        if isinstance(action, StartUpdate):
            overrides = run.overrides.get(action.cluster, ())
            strategy = (
                context.versions.strategy_on(action.cluster)
                if context.versions
                else None
            )
            content = Content(
                action.version, run.resource_snapshot, overrides, strategy
            )
        if action.cluster in rows:
            updates.append(
                build_updates(
                    rows[action.cluster], content, attempt=action.attempt, now=now
                )
            )
    if updates:
        save_updates(updates, context, now=now)
