"""The status of a staged update run of a live hub as our values: stages, clusters, tasks, times (10.1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleetui.apimachinery.model import items_at, mapping_at
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
from placements.hubs.kinds.base import text_of
from placements.hubs.projection.documents import HubDocument
from placements.manifests.staged_update import RunState, StagedStrategySpec, StageSpec
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
    elif progressing is None:
        run_status = (
            RunStatus.INITIALISED
            if state is RunState.INITIALIZE
            else RunStatus.PROGRESSING
        )
    else:
        run_status = _REASONS.get(str(progressing.get("reason")), RunStatus.PROGRESSING)
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
    specs = {one.name: one for one in strategy.stages}
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
    steps = _steps(document, deletions, path=f"{_STATUS}.{_DELETION}")
    deletion = Stage(
        DELETE_STAGE,
        steps,
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
        updated_at=max((one.done_at for one in steps if one.done_at), default=None),
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
    for index, one in enumerate(map(mapping_at, items_at(values, "clusters"))):
        place = f"{path}.clusters[{index}]"
        name = text_of(one.get("clusterName"))
        if not name or name in steps:
            document.reject(f"{place}.clusterName")
            continue
        started, done = (
            document.transition(one, kind, path=place)
            for kind in ("Started", "Succeeded")
        )
        failed = document.transition(one, "Succeeded", path=place, status="False")
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
    return StagedUpdateResult(
        run=plan,
        status=status,
        waits=tuple(_waits(stage, status, running, is_elapsed=stage.name in elapsed)),
        concurrency=concurrency,
        stuck=running if status is RunStatus.STUCK else (),
    )


def _waits(
    stage: Stage,
    status: RunStatus,
    running: Sequence[str],
    *,
    is_elapsed: bool,
) -> list[Wait]:
    if status is RunStatus.INITIALISED:
        return [Wait(WaitReason.RUN)]
    if status is RunStatus.STOPPED:
        return [Wait(WaitReason.RESUME)]
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
        if stage.wait > timedelta(0) and not is_elapsed:
            waits.append(
                Wait(WaitReason.TIME, stage.name, until=stage.updated_at + stage.wait)
            )
    return waits
