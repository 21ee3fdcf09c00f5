"""Staged strategies, runs and approvals of a live hub, and how far a run is."""

from collections.abc import Collection, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q

from clusters.models import MirroredObject
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name, split_full_name
from fleetui.audit import AuditEvent
from fleetui.bulk import batched
from placements.engine.rollout.staged_run import (
    DELETE_STAGE,
    ApprovalPoint,
    ClusterStep,
    RunStatus,
    Stage,
    StageConcurrency,
    StagedRunOutcome,
    StagedRunPlan,
    StagedUpdateResult,
    Wait,
    WaitReason,
)
from placements.explain.staged_updates import staged_document
from placements.hubs.kinds.base import text_of
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP, PREFIX, REQUESTED_BY
from placements.hubs.projection.kinds import APPROVAL_KINDS, RUN_KINDS, STRATEGY_KINDS
from placements.hubs.projection.placements import placement_keys
from placements.hubs.projection.rows import (
    APPROVED,
    HUB,
    Conditions,
    HubDocument,
    HubEvents,
    HubMoment,
    RowKind,
    WrittenRow,
    understood,
    write_rows,
)
from placements.manifests.staged_update import (
    RunState,
    StagedStrategySpec,
    StageSpec,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.models import (
    ApprovalRequest,
    ResourceSnapshot,
    StagedRun,
    StagedStrategy,
)
from placements.models.placements import LONGEST_NAME
from placements.models.rollouts import INITIALISING

_STATUS = "status"
_STAGES = "stagesStatus"
_DELETION = "deletionStageStatus"
_REASONS = {
    "UpdateRunStopped": RunStatus.STOPPED,
    "UpdateRunStopping": RunStatus.STOPPING,
    "UpdateRunWaiting": RunStatus.WAITING,
    "UpdateRunStuck": RunStatus.STUCK,
}
Values = Mapping[str, Any]

_RUN_CONTROLLERS = frozenset(
    {"cluster-staged-update-run-controller", "staged-update-run-controller"}
)
"""Managers of the controllers of staged update runs, which also write to `spec`."""


@dataclass(frozen=True, slots=True)
class HubRunStatus:
    """How far a run is by the status of the hub; without a result it is not initialized."""

    status: str
    result: StagedUpdateResult | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


def run_status_of(
    document: HubDocument, state: RunState, strategy: StagedStrategySpec | None
) -> HubRunStatus:
    """Return how far a run is; conditions of an earlier generation count until there are newer ones."""
    status = mapping_at(document.content, _STATUS)
    conditions = document.conditions(_STATUS, "conditions")

    def since(kind: str, value: str) -> datetime | None:
        return document.transition(status, kind, path=_STATUS, status=value)

    failed_at = since("Initialized", "False")
    if failed_at:
        return HubRunStatus(RunStatus.FAILED, ended_at=failed_at)
    if strategy is None or conditions.get("Initialized", {}).get("status") != "True":
        return HubRunStatus(INITIALISING)

    plan = _plan(document, status, strategy)
    progressing = conditions.get("Progressing")
    if at := since("Succeeded", "True"):
        plan = plan.end(StagedRunOutcome.SUCCEEDED, at)
    elif at := since("Succeeded", "False"):
        plan = plan.end(StagedRunOutcome.FAILED, at)
    if plan.outcome:
        run_status = RunStatus(plan.outcome.value)
    elif progressing is None and state is RunState.INITIALIZE:
        run_status = RunStatus.INITIALISED
    else:
        reason = mapping_at(progressing).get("reason")
        run_status = _REASONS.get(str(reason), RunStatus.PROGRESSING)
    if run_status is RunStatus.STOPPED:
        plan = replace(plan, is_stopped=True, stopped_at=since("Progressing", "False"))

    starts = [step.started_at for step in plan.steps if step.started_at]
    if not starts and (state is not RunState.INITIALIZE or progressing is not None):
        starts = [since("Initialized", "True") or document.created_at]
    elapsed = {
        str(stage.get("stageName"))
        for stage in map(mapping_at, items_at(status, _STAGES))
        for task in map(mapping_at, items_at(stage, "afterStageTaskStatus"))
        if document.transition(task, "WaitTimeElapsed", path=f"{_STATUS}.{_STAGES}")
    }
    result = _result(plan, run_status, elapsed)
    return HubRunStatus(run_status, result, min(starts, default=None), plan.ended_at)


def _plan(
    document: HubDocument, status: Values, strategy: StagedStrategySpec
) -> StagedRunPlan:
    specs = {stage.name: stage for stage in strategy.stages}
    stages = []
    version = text_of(status.get("resourceSnapshotIndexUsed"), longest=10)
    for index, raw in enumerate(items_at(status, _STAGES)):
        path = f"{_STATUS}.{_STAGES}[{index}]"
        values = mapping_at(raw)
        spec = specs.pop(str(values.get("stageName")), None)
        if spec is None:
            document.reject(f"{path}.stageName")
        else:
            stages.append(
                _stage(document, values, spec, path=path, version=f"r{version}")
            )
    deletions = mapping_at(status, _DELETION)
    deletion = Stage(
        DELETE_STAGE,
        _steps(document, deletions, path=f"{_STATUS}.{_DELETION}"),
        ended_at=_ended_at(document, deletions, f"{_STATUS}.{_DELETION}"),
    )
    policy = text_of(status.get("policySnapshotIndexUsed"), longest=10)
    return StagedRunPlan(tuple(stages), deletion, policy)


def _stage(
    document: HubDocument,
    values: Values,
    spec: StageSpec,
    *,
    path: str,
    version: str,
) -> Stage:
    steps = _steps(document, values, path=path, version=version)
    stage = Stage(
        spec.name,
        steps,
        spec.max_concurrency.at_least_one_of(len(steps)),
        spec.needs_approval_before,
        spec.needs_approval_after,
        spec.wait,
        updated_at=max((step.done_at for step in steps if step.done_at), default=None),
        ended_at=_ended_at(document, values, path),
    )
    if not stage.is_updated:
        stage = replace(stage, updated_at=None)
    for side in ApprovalPoint:
        key = f"{side}StageTaskStatus"
        for index, task in enumerate(map(mapping_at, items_at(values, key))):
            if task.get("type") == "Approval":
                at = f"{path}.{key}[{index}]"
                requested = document.transition(task, "ApprovalRequestCreated", path=at)
                approved = document.transition(task, "ApprovalRequestApproved", path=at)
                at_first = requested or approved
                if side == ApprovalPoint.BEFORE:
                    stage = replace(
                        stage, requested_before_at=at_first, approved_before_at=approved
                    )
                else:
                    stage = replace(
                        stage, requested_after_at=at_first, approved_after_at=approved
                    )
    return stage


def _ended_at(document: HubDocument, values: Values, path: str) -> datetime | None:
    """Return when a stage succeeded; the hub writes the time of the end of a failed one as well."""
    at = document.transition(values, "Succeeded", path=path)
    return at and (document.moment_in(values, "endTime", path=f"{path}.endTime") or at)


def _steps(
    document: HubDocument,
    values: Values,
    *,
    path: str,
    version: str = "",
) -> tuple[ClusterStep, ...]:
    steps: dict[str, ClusterStep] = {}
    for index, cluster in enumerate(map(mapping_at, items_at(values, "clusters"))):
        place = f"{path}.clusters[{index}]"
        name = text_of(cluster.get("clusterName"))
        if not name or name in steps:
            document.reject(f"{place}.clusterName")
            continue
        started, done = (
            document.transition(cluster, kind, path=place)
            for kind in ("Started", "Succeeded")
        )
        failed = document.transition(cluster, "Succeeded", path=place, status="False")
        steps[name] = ClusterStep(
            name,
            version,
            started_at=started or done or failed,
            failed_at=failed,
            failures=int(failed is not None),
            done_at=done,
        )
    return tuple(steps.values())


def _result(
    plan: StagedRunPlan, status: RunStatus, elapsed: Collection[str]
) -> StagedUpdateResult:
    """Return what a run does and waits for, as far as the status of the hub has it."""
    if plan.outcome:
        return StagedUpdateResult(run=plan, status=status)
    stage = plan.current
    running = tuple(step.name for step in stage.steps if step.is_running)
    concurrency = None
    if not plan.is_deleting and status is not RunStatus.INITIALISED:
        concurrency = StageConcurrency(
            limit=stage.limit,
            running=len(running),
            stage=stage.name,
            clusters=len(stage.steps),
            done=sum(step.done_at is not None for step in stage.steps),
        )
    is_timed = stage.wait > timedelta(0) and stage.name not in elapsed
    return StagedUpdateResult(
        run=plan,
        status=status,
        waits=tuple(_waits(stage, status, running, is_timed=is_timed)),
        concurrency=concurrency,
        stuck=running if status is RunStatus.STUCK else (),
    )


_WAITS_OF_STATUS = {
    RunStatus.INITIALISED: WaitReason.RUN,
    RunStatus.STOPPED: WaitReason.RESUME,
}


def _waits(
    stage: Stage,
    status: RunStatus,
    running: Sequence[str],
    *,
    is_timed: bool,
) -> list[Wait]:
    if status in _WAITS_OF_STATUS:
        return [Wait(_WAITS_OF_STATUS[status])]
    waits = []
    is_deleting = stage.name == DELETE_STAGE
    if stage.steps and not stage.may_start:
        waits.append(Wait(WaitReason.APPROVAL_BEFORE, stage.name))
    elif running:
        reason = WaitReason.REMOVALS if is_deleting else WaitReason.CLUSTERS
        waits.append(Wait(reason, stage.name, tuple(running)))
    elif stage.updated_at and not is_deleting:
        if not stage.may_end:
            waits.append(Wait(WaitReason.APPROVAL_AFTER, stage.name))
        if is_timed:
            waits.append(
                Wait(WaitReason.TIME, stage.name, until=stage.updated_at + stage.wait)
            )
    return waits


NO_RUN = "its staged update run is not in the mirror"
_RUN = "staged-run"
"""The kind of events."""
_SNAPSHOT = "stagedUpdateStrategySnapshot"
_SIDES = {"beforeStage": ApprovalPoint.BEFORE, "afterStage": ApprovalPoint.AFTER}
_APPROVAL_COLUMNS = (
    "uid",
    "requested_at",
    "approved_at",
    "approved_by",
    "accepted_at",
)


class StrategyRows(RowKind[StagedStrategy]):
    model = StagedStrategy
    mirrored = STRATEGY_KINDS
    noun = "staged-strategy"
    columns = ("document", "created_at", "revision")
    bookkeeping = ("updated_at",)
    is_namespaced = True
    parse = staticmethod(parse_staged_strategy)


class RunRows(RowKind[StagedRun]):
    """Staged update runs; the placement of one may come later, or be deleted."""

    model = StagedRun
    mirrored = RUN_KINDS
    noun = _RUN
    columns = (
        "document",
        "revision",
        "generation",
        "hub_status",
        "placement_id",
        "placement_name",
        "resource_snapshot_id",
        "resource_number",
        "revision_number",
        "strategy",
        "plan",
        "sync_result",
        "status",
        "created_at",
        "created_by",
        "started_at",
        "started_by",
        "ended_at",
    )
    bookkeeping = ("progress_version",)
    is_namespaced = True

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        super().__init__(documents, moment)
        self.placements = placement_keys(documents)
        rows = ResourceSnapshot.objects.filter(placement__in=self.placements.values())
        self.snapshots: dict[tuple[int | None, int | None], ResourceSnapshot] = {
            (row.placement_id, row.number): row
            for row in rows.only("placement", "number", "revision_number")
        }

    def fill(self, row: StagedRun, document: HubDocument) -> bool:
        pair = understood(document, parse_staged_run)
        if pair is None or len(pair[0].spec.placement_name) > LONGEST_NAME:
            document.error = document.error or "the name of the placement is too long"
            return False
        parsed, row.document = pair
        spec = parsed.spec
        status = mapping_at(document.content, "status")
        row.placement_name = full_name(document.row.namespace, spec.placement_name)
        row.generation = document.row.generation
        row.hub_status = deepcopy(dict(status)) or None
        index = text_of(
            status.get("resourceSnapshotIndexUsed") or spec.resource_snapshot_index,
            longest=9,
        )
        row.resource_number = int(index) if index.isdecimal() else None

        stages = mapping_at(status, _SNAPSHOT)
        namespace = (
            {"namespace": document.row.namespace} if document.row.namespace else {}
        )
        row.strategy = {
            "apiVersion": document.content["apiVersion"],
            "kind": STRATEGY_KINDS[bool(document.row.namespace)],
            "metadata": {"name": spec.staged_rollout_strategy_name, **namespace},
            "spec": dict(stages) or {"stages": []},
        }
        strategy = None
        if stages:
            inner = HubDocument(document.row, document.content)
            used = understood(inner, parse_staged_strategy, row.strategy)
            for path in inner.not_understood:
                document.reject(path.replace("spec", f"status.{_SNAPSHOT}", 1))
            if used:  # else the run is shown without its stages
                strategy = used[0].spec
                row.strategy = used[1]
        how_far = run_status_of(document, spec.state, strategy)
        row.status = how_far.status
        row.ended_at = how_far.ended_at
        row.plan = how_far.result.run.to_plain() if how_far.result else None
        row.sync_result = staged_document(how_far.result) if how_far.result else {}
        row.created_at = document.created_at
        notes = mapping_at(document.content, "metadata", "annotations")
        row.created_by = (
            text_of(notes.get(REQUESTED_BY), longest=128)
            or document.manager("spec", without=_RUN_CONTROLLERS)
            or HUB
        )
        row.started_at = how_far.started_at
        row.started_by = row.created_by if row.started_at else ""
        row.placement_id = self.placements.get(document.row.owner)
        snapshot = self.snapshots.get((row.placement_id, row.resource_number))
        row.resource_snapshot = snapshot
        row.revision_number = snapshot.revision_number if snapshot else None
        return True

    def change(self, before: StagedRun, row: StagedRun) -> None:  # noqa: ARG002 -- of a kind
        row.progress_version += 1

    def conditions(self, row: StagedRun) -> Conditions:
        conditions = map(mapping_at, items_at(row.hub_status, "conditions"))
        return [condition for condition in conditions if condition.get("type")]

    def follow(self, written: Sequence[WrittenRow[StagedRun]]) -> None:
        new = [row.document.full_name for row in written if row.before is None]
        mark_approvals(new)

    def delete(self, pks: Sequence[int]) -> None:
        """Delete runs; what is left of their requests is marked."""
        rows = StagedRun.objects.filter(pk__in=pks)
        names = sorted(rows.values_list("full_name", flat=True))
        rows.delete()
        mark_approvals(names)


def mark_approvals(runs: Sequence[str]) -> None:
    """Mark the requests of these runs to be projected again: they may have come before their run."""
    for part in batched(runs, size=50):
        is_of_run = Q()
        for namespace, name in map(split_full_name, part):
            is_of_run |= Q(namespace=namespace, name__startswith=f"{name}-")
        requests = MirroredObject.objects.filter(
            group=PLACEMENT_GROUP, kind__in=APPROVAL_KINDS
        )
        requests.filter(is_dirty=False).filter(is_of_run).update(is_dirty=True)


def project_approvals(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write approval requests; each belongs to the run that its label names."""
    places = {document.row.pk: _place(document) for document in documents}
    names = {run for run, *_ in places.values()}
    runs = {run.full_name: run for run in StagedRun.objects.filter(full_name__in=names)}
    there = {
        (row.run_id, row.stage, row.side): row
        for row in ApprovalRequest.objects.filter(
            run__in=[run.pk for run in runs.values()]
        )
    }
    made = []
    for document in documents:
        name, stage, side = places[document.row.pk]
        run = runs.get(name)
        if run is None:
            document.error = NO_RUN
        elif not stage or not side or document.full_name != f"{name}-{side}-{stage}":
            document.reject("metadata.labels")
            document.error = "its stage is not understood"
        else:
            before = there.get((run.pk, stage, side))
            place = {"run": run, "stage": stage, "side": side}
            row = copy(before) if before else ApprovalRequest(**place)
            _fill_approval(row, document)
            made.append((document, before, row))
    written = write_rows(ApprovalRequest, made, columns=_APPROVAL_COLUMNS)
    StagedRun.objects.filter(
        pk__in={written_row.row.run_id for written_row in written}
    ).update(progress_version=F("progress_version") + 1)
    events = HubEvents(moment)
    for written_row in written:
        before = written_row.before
        row = written_row.row
        if before is not None and row.approved_at and not before.approved_at:
            name = places[written_row.document.row.pk][0]
            event = AuditEvent(APPROVED, _RUN, name, after={"stage": row.stage})
            events.add(event, by=row.approved_by)
    events.record()


def _place(document: HubDocument) -> tuple[str, str, str]:
    """Return run, stage and side of a request, by its labels; without them by its spec and name."""
    labels = mapping_at(document.content, "metadata", "labels")
    run, stage = (
        text_of(labels.get(f"{PREFIX}{label}") or document.spec.get(key))
        for label, key in (
            ("targetUpdateRun", "parentStageRollout"),
            ("targetUpdatingStage", "targetStage"),
        )
    )
    task = labels.get(f"{PREFIX}taskType")
    side = _SIDES.get(task) if isinstance(task, str) else None
    if task is None:
        side = next(
            (
                point
                for point in ApprovalPoint
                if document.row.name == f"{run}-{point}-{stage}"
            ),
            None,
        )
    return full_name(document.row.namespace, run), stage[:63], str(side or "")


def _fill_approval(row: ApprovalRequest, document: HubDocument) -> None:
    """Set the columns of a request; an approval counts at its generation, or once it was accepted."""
    status = mapping_at(document.content, "status")
    conditions = document.conditions("status", "conditions")
    accepted_at = document.transition(status, "ApprovalAccepted", path="status")
    approved_at = document.transition(status, "Approved", path="status")
    is_current = (
        conditions.get("Approved", {}).get("observedGeneration")
        == document.row.generation
    )
    if not accepted_at and not is_current:
        approved_at = None
    row.uid = document.uid
    row.requested_at = document.created_at
    row.approved_at = approved_at or accepted_at
    row.approved_by = ""
    if row.approved_at:
        row.approved_by = document.manager("status", without=_RUN_CONTROLLERS) or HUB
    row.accepted_at = accepted_at


def remove_approvals(_moment: HubMoment) -> int:
    """Delete the requests that the mirror has no more; return how many."""
    requests = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind__in=APPROVAL_KINDS
    )
    names = {full_name(*place) for place in requests.values_list("namespace", "name")}
    rows = ApprovalRequest.objects.values_list("pk", "run__full_name", "side", "stage")
    gone = [pk for pk, run, side, stage in rows if f"{run}-{side}-{stage}" not in names]
    for part in batched(gone):
        ApprovalRequest.objects.filter(pk__in=part).delete()
    return len(gone)
