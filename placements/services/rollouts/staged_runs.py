"""Staged runs and their strategies: create, change, end early (`rules/lifecycle.md#staged-update-runs`)."""

from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    raise_errors,
)
from fleetui.apimachinery.kinds import (
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
    kind_in,
)
from fleetui.apimachinery.metadata import next_generation
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.words import split_full_name
from fleetui.audit import (
    AuditEvent,
    actor_name,
    record,
    record_event,
)
from fleetui.concurrency import RevisionConflict, check_revision, retry_on_conflict
from fleetui.errors import UnknownObject
from fleetui.permissions import check_change
from placements.engine.rollout.staged_run import (
    DELETE_STAGE,
    RunStatus,
    Stage,
    StagedRunOutcome,
    StagedRunPlan,
    StageReason,
    run_from_plain,
)
from placements.engine.rollout.staged_update import ended
from placements.explain.staged_updates import staged_document
from placements.manifests.placement import parse_placement
from placements.manifests.staged_update import (
    ClusterStagedUpdateRun,
    RunState,
    parse_staged_run,
    parse_staged_strategy,
    run_change_errors,
    state_errors,
)
from placements.manifests.strategy import StrategyType
from placements.models import Placement, ResourceSnapshot, StagedRun, StagedStrategy
from placements.services.resources.queries import selection_for
from placements.services.results import (
    OperationResult,
    SaveResult,
    delete_row,
    document_of,
    locked_row,
    revision_of,
    save_row,
    stored_document,
)
from placements.services.rollout_state import spec_state_of
from placements.services.teams import (
    check_documents,
    check_placement_as_is,
    check_rollback,
    labels_of_run,
)
from placements.services.workqueue import enqueue_rollout

STAGED_RUN = "staged-run"
NO_PLAN = StagedRunPlan((), Stage(DELETE_STAGE, ()))
"""The plan of a run that never started."""
_VERBS = {
    RunState.INITIALIZE: "changed",
    RunState.RUN: "started",
    RunState.STOP: "paused",
}


def locked_run(name: str) -> StagedRun | None:
    """Lock a run, and before it its placement, as a sync does; only inside a transaction."""
    placement = StagedRun.objects.filter(full_name=name).values("placement")
    list(
        Placement.objects.select_for_update().filter(pk__in=placement).values_list("pk")
    )
    return StagedRun.objects.select_for_update().filter(full_name=name).first()


@retry_on_conflict
def save_run(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[StagedRun]:
    """Create a run or change its state; the same again changes nothing.

    A worker finds out soon whether it can start. Raise InvalidManifest, RevisionConflict.
    """
    manifest = parse_staged_run(dict(document))
    content = stored_document(document)
    name = manifest.full_name
    current = locked_run(name)
    if current is not None:
        check_change(by, labels_of_run(current), what=f"staged run {name}")
    check_revision(STAGED_RUN, name, expected=expected, revision=revision_of(current))
    if current is None:
        run = _create_run(manifest, content, by=by, now=now)
        return SaveResult(run, OperationResult.CREATED)
    if current.document == content:
        return SaveResult(current, OperationResult.UNCHANGED)
    _change_run(current, manifest, content, by=by, now=now)
    return SaveResult(current, OperationResult.CHANGED)


def _create_run(
    manifest: ClusterStagedUpdateRun,
    content: dict[str, Any],
    *,
    by: User | None,
    now: datetime,
) -> StagedRun:
    spec = manifest.spec
    # A run refers to its own namespace.
    key = {"namespace": manifest.namespace, "name": spec.placement_name}
    placement = Placement.objects.select_for_update().filter(**key).first()
    check_placement_as_is(by, spec.placement_name, document_of(placement))
    key["name"] = spec.staged_rollout_strategy_name
    strategy = StagedStrategy.objects.filter(**key).first()
    snapshot = None
    if placement and spec.resource_snapshot_index:
        snapshots = ResourceSnapshot.objects.filter(placement=placement)
        snapshot = snapshots.filter(number=int(spec.resource_snapshot_index)).first()
    errors = list(_missing(manifest, placement, strategy, snapshot))
    if placement is None or strategy is None or errors:
        raise InvalidManifest(errors)
    run = StagedRun(
        namespace=manifest.namespace,
        name=manifest.metadata.name,
        document=content,
        placement=placement,
        placement_name=placement.full_name,
        strategy=strategy.document,
        created_at=now,
        created_by=actor_name(by),
    )
    if snapshot is not None:
        check_rollback(by, snapshot, selected=lambda: selection_for(placement).objects)
        run.resource_snapshot = snapshot
        run.resource_number = snapshot.number
        run.revision_number = snapshot.roll_out_with(placement)
    _set_started(run, spec.state, by=by, now=now)
    run.save(force_insert=True)
    record_event(
        "created", STAGED_RUN, run.full_name, revision=1, after=content, by=by, now=now
    )
    enqueue_rollout([placement.pk])
    return run


def _missing(
    manifest: ClusterStagedUpdateRun,
    placement: Placement | None,
    strategy: StagedStrategy | None,
    snapshot: ResourceSnapshot | None,
) -> Iterator[FieldError]:
    """Yield the references of a new run that do not exist, or are not possible."""
    spec = manifest.spec
    place = manifest.namespace and f" in namespace {manifest.namespace}"
    kind = kind_in(manifest.namespace, STAGED_STRATEGY_KIND)
    if placement is None:
        message = f"no placement is named {spec.placement_name!r}{place}"
        yield FieldError(
            "spec.placementName",
            "not-found",
            message,
            "a placement with strategy External",
        )
    elif placement.deleting_since:
        message = f"the placement {placement.full_name} is being deleted"
        yield FieldError(
            "spec.placementName", "being-deleted", message, "another placement"
        )
    elif (
        parse_placement(placement.document).spec.strategy.type
        is not StrategyType.EXTERNAL
    ):
        message = f"the placement {placement.full_name} is not updated by staged runs"
        message = f"{message}: its strategy is not External"
        yield FieldError(
            "spec.placementName",
            "not-staged",
            message,
            "a placement with strategy External",
        )
    if strategy is None:
        path, name = "spec.stagedRolloutStrategyName", spec.staged_rollout_strategy_name
        message, allowed = f"no strategy is named {name!r}{place}", f"a {kind}"
        yield FieldError(path, "not-found", message, allowed)
    if placement and spec.resource_snapshot_index and snapshot is None:
        rows = ResourceSnapshot.objects.filter(placement=placement).order_by("number")
        numbers = list(rows.values_list("number", flat=True))
        if int(spec.resource_snapshot_index) == next(reversed(numbers), -1) + 1:
            return  # the next one: the run waits until it exists
        numbers_text = ", ".join(map(str, numbers)) or "0, which is the first one"
        message = f"{placement.full_name} has no resource snapshot {spec.resource_snapshot_index}"
        yield FieldError(
            "spec.resourceSnapshotIndex", "not-found", message, numbers_text
        )


def _change_run(
    run: StagedRun,
    manifest: ClusterStagedUpdateRun,
    content: dict[str, Any],
    *,
    by: User | None,
    now: datetime,
) -> None:
    before, state = parse_staged_run(run.document), manifest.spec.state
    raise_errors([*run_change_errors(before, manifest), *_ended_errors(run, state)])
    if state is RunState.RUN and run.placement is not None:
        check_placement_as_is(by, run.placement_name, run.placement.document)
    _set_started(run, state, by=by, now=now)
    verb = _VERBS[state] if state != before.spec.state else "changed"
    event = AuditEvent(
        verb,
        STAGED_RUN,
        run.full_name,
        run.revision + 1,
        before=run.document,
        after=content,
    )
    run.generation = next_generation(run.spec_generation, run.document, content)
    run.document, run.revision, run.progress_version = (
        content,
        run.revision + 1,
        run.progress_version + 1,
    )
    if run.plan and state != before.spec.state:
        show_progress(
            run, RunStatus.PROGRESSING if state is RunState.RUN else RunStatus.STOPPING
        )
    run.save()
    record(event, by=by, now=now)
    if run.placement_id:
        enqueue_rollout([run.placement_id])


def _ended_errors(run: StagedRun, state: RunState) -> list[FieldError]:
    if run.ended_at is None or state is spec_state_of(run):
        return []
    return [
        FieldError(
            "spec.state", "ended", f"the run has ended ({run.status})", "make a new run"
        )
    ]


def why_not_state(run: StagedRun, state: RunState) -> str:
    """Return why a user may not start, pause or resume a run; the same state again changes nothing."""
    errors = state_errors(spec_state_of(run), state) + _ended_errors(run, state)
    return "; ".join(error.message for error in errors)


def show_progress(run: StagedRun, status: RunStatus, waits: Sequence[Any] = ()) -> None:
    """Set what a run does and waits for after an action of a user, until a worker processes that."""
    run.status, run.sync_result = (
        status,
        {**run.sync_result, "status": status, "waits": list(waits)},
    )


def _set_started(
    run: StagedRun,
    state: RunState,
    *,
    by: User | None,
    now: datetime,
) -> None:
    if state is RunState.RUN and run.started_at is None:
        run.started_at, run.started_by = now, actor_name(by)


@transaction.atomic
def start_run(
    name: str,
    *,
    placement: str,
    strategy: str | dict[str, Any],
    snapshot: int | None = None,
    is_prepared: bool = False,
    by: User | None,
    now: datetime,
) -> StagedRun:
    """Create a run; it starts immediately, or, only prepared, when a user resumes it.

    The run and the strategy, which is named without it, are in the namespace of the placement. A new strategy
    is a manifest, and is saved with the run. Without a snapshot the run rolls out what the hub has when it
    starts. Raise InvalidManifest, also when a name exists.
    """
    namespace, placement_name = split_full_name(placement)
    if not isinstance(strategy, str):
        try:
            saved = save_strategy(strategy, by=by, now=now, expected=0)
        except RevisionConflict as exists:
            message = "a strategy has this name already; select it"
            raise InvalidManifest.of(
                "metadata.name", "duplicate", message, "another name"
            ) from exists
        strategy = saved.object.name
    spec = {"placementName": placement_name, "stagedRolloutStrategyName": strategy}
    if snapshot is not None:
        spec["resourceSnapshotIndex"] = str(snapshot)
    state = RunState.INITIALIZE if is_prepared else RunState.RUN
    spec["state"] = str(state)
    document = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": kind_in(namespace, STAGED_RUN_KIND),
        "metadata": omit_empty(name=name, namespace=namespace),
        "spec": spec,
    }
    try:
        return save_run(document, by=by, now=now, expected=0).object
    except RevisionConflict as exists:
        message = f"a run is named {name} already; run names cannot be reused"
        raise InvalidManifest(
            [FieldError("metadata.name", "duplicate", message, "another name")]
        ) from exists


def plan_of(run: StagedRun) -> StagedRunPlan:
    return run_from_plain(run.plan) if run.plan else NO_PLAN


def why_facts(reasons: Iterable[StageReason]) -> dict[str, Any] | None:
    """Return what the event of the end of a run says; None without a reason."""
    return omit_empty(why=[reason.code for reason in reasons]) or None


def end_staged_run(
    run: StagedRun,
    outcome: StagedRunOutcome,
    *reasons: StageReason,
    by: User | None,
    now: datetime,
) -> None:
    """End a run, inside the caller's transaction; running updates on clusters finish."""
    result = ended(plan_of(run).end(outcome, now, *reasons))
    run.plan, run.sync_result, run.status = (
        result.run.to_plain(),
        staged_document(result),
        result.status,
    )
    run.ended_at, run.progress_version, run.revision = (
        now,
        run.progress_version + 1,
        run.revision + 1,
    )
    run.save(
        update_fields=[
            "plan",
            "sync_result",
            "status",
            "ended_at",
            "progress_version",
            "revision",
        ]
    )
    after = why_facts(reasons)
    has_failed = outcome is StagedRunOutcome.FAILED
    record_event(
        run.status,
        STAGED_RUN,
        run.full_name,
        run.revision,
        after=after,
        is_warning=has_failed,
        by=by,
        now=now,
    )


def end_runs_of(
    placement: Placement,
    reason: StageReason,
    *,
    by: User | None,
    now: datetime,
) -> None:
    rows = StagedRun.objects.select_for_update().filter(
        placement=placement, ended_at=None
    )
    for run in rows.order_by("pk"):
        end_staged_run(run, StagedRunOutcome.FAILED, reason, by=by, now=now)


STAGED_STRATEGY = "staged-strategy"


class UnknownStrategyError(UnknownObject):
    problem_type = "unknown-strategy"

    def __init__(self, name: str) -> None:
        super().__init__(f"no staged update strategy is named {name!r}")


@retry_on_conflict
def save_strategy(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[StagedStrategy]:
    """Create a strategy or change it; the same again changes nothing.

    Raise InvalidManifest, RevisionConflict.
    """
    manifest = parse_staged_strategy(dict(document))
    label, key = (
        manifest.full_name,
        {"namespace": manifest.namespace, "name": manifest.metadata.name},
    )
    current = locked_row(StagedStrategy, STAGED_STRATEGY, expected, label=label, **key)
    check_documents(by, f"strategy {label}", document_of(current), dict(document))
    row = current or StagedStrategy(**key, created_at=now, revision=0)
    return save_row(row, STAGED_STRATEGY, document, by=by, now=now, label=label)


@transaction.atomic
def delete_strategy(
    name: str, *, by: User | None, now: datetime, expected: int | None = None
) -> None:
    """Delete a strategy; runs keep their copy. Raise UnknownStrategyError, RevisionConflict."""
    row = locked_row(
        StagedStrategy, STAGED_STRATEGY, expected, label=name, full_name=name
    )
    if row is None:
        raise UnknownStrategyError(name)
    check_documents(by, f"strategy {name}", row.document)
    delete_row(row, STAGED_STRATEGY, by=by, now=now, label=name)
