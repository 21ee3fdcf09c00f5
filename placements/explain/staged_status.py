"""A staged run for readers: its status as the released system writes it, and the facts of its progress."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from placements.explain.staged_wording import reason_sentence, run_sentences
from placements.rollout.staged_facts import Answer, RunStatus
from placements.rollout.stages import ClusterStep, Outcome, Stage, StagedRun

_PROGRESSING = {
    RunStatus.PROGRESSING: ("True", "UpdateRunProgressing"),
    RunStatus.WAITING: ("False", "UpdateRunWaiting"),
    RunStatus.STUCK: ("False", "UpdateRunStuck"),
    RunStatus.STOPPING: ("Unknown", "UpdateRunStopping"),
    RunStatus.STOPPED: ("False", "UpdateRunStopped"),
    RunStatus.SUCCEEDED: ("False", "UpdateRunSucceeded"),
    RunStatus.FAILED: ("False", "UpdateRunFailed"),
    RunStatus.ABANDONED: ("False", "UpdateRunFailed"),
}


def run_status(answer: Answer, *, snapshot: int | None) -> dict[str, Any]:
    """Give the status of a run document (lifecycle B.5.6)."""
    run = answer.run
    used = {} if snapshot is None else {"resourceSnapshotIndexUsed": str(snapshot)}
    return {
        **({"policySnapshotIndexUsed": run.policy_snapshot} if run.policy_snapshot else {}),
        **used,
        "stagesStatus": [_stage_status(stage) for stage in run.stages],
        "deletionStageStatus": _stage_status(run.deletions),
        "conditions": list(_conditions(answer)),
    }


def _conditions(answer: Answer) -> Iterator[dict[str, Any]]:
    run, why = answer.run, " ".join(map(reason_sentence, answer.run.why))
    if not run.stages and run.outcome:
        yield _condition("Initialized", "False", "UpdateRunInitializedFailed", why, run.ended_at)
        return
    yield _condition("Initialized", "True", "UpdateRunInitializedSuccessfully")
    if answer.status in _PROGRESSING:
        status, reason = _PROGRESSING[answer.status]
        yield _condition("Progressing", status, reason, " ".join(run_sentences(answer)), run.ended_at)
    if run.outcome:
        succeeded = run.outcome is Outcome.SUCCEEDED
        reason = "UpdateRunSucceeded" if succeeded else "UpdateRunFailed"
        yield _condition("Succeeded", str(succeeded), reason, why, run.ended_at)


def _condition(
    kind: str, status: str, reason: str, message: str = "", at: datetime | None = None
) -> dict[str, Any]:
    told = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**told, "lastTransitionTime": moment(at)} if at else told


def _stage_status(stage: Stage) -> dict[str, Any]:
    started = min((step.started_at for step in stage.steps if step.started_at), default=None)
    times = {"startTime": moment(started), "endTime": moment(stage.ended_at)}
    return {
        "stageName": stage.name,
        **{key: value for key, value in times.items() if value},
        "clusters": [
            {"clusterName": step.name, "conditions": list(_step_conditions(step))} for step in stage.steps
        ],
    }


def _step_conditions(step: ClusterStep) -> Iterator[dict[str, Any]]:
    if step.started_at:
        yield _condition("Started", "True", "ClusterUpdatingStarted", at=step.started_at)
    if step.done_at:
        yield _condition("Succeeded", "True", "ClusterUpdatingSucceeded", at=step.done_at)
    elif step.failed_at:
        yield _condition("Succeeded", "False", "ClusterUpdatingFailed", at=step.failed_at)


def progress_facts(answer: Answer) -> dict[str, Any]:
    """Give what a run is doing: in sentences, by stage, by cluster."""
    run = answer.run
    return {
        "status": str(answer.status),
        "sentences": run_sentences(answer),
        "stage": None if run.outcome else run.current.name,
        "waits": [
            {
                "for": str(one.what),
                "stage": one.stage,
                "clusters": list(one.names),
                "until": moment(one.until),
            }
            for one in answer.waits
        ],
        "stuck": list(answer.stuck),
        "mayStillHold": list(run.may_still_hold),
        "stages": [_stage_facts(run, stage) for stage in (*run.stages, run.deletions)],
    }


def _stage_facts(run: StagedRun, stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "state": _stage_state(run, stage),
        "atOnce": stage.limit if stage is not run.deletions else len(stage.steps),
        "needsApprovalBefore": stage.needs_approval_before,
        "needsApprovalAfter": stage.needs_approval_after,
        "approvedBefore": moment(stage.approved_before_at),
        "approvedAfter": moment(stage.approved_after_at),
        "waitSeconds": int(stage.wait.total_seconds()),
        "updatedAt": moment(stage.updated_at),
        "endedAt": moment(stage.ended_at),
        "clusters": [_step_facts(step) for step in stage.steps],
    }


def _stage_state(run: StagedRun, stage: Stage) -> str:
    if stage.was_skipped:
        return "skipped"
    if stage.ended_at:
        return "done"
    return "current" if stage is run.current and not run.outcome else "to come"


def _step_facts(step: ClusterStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "state": _step_state(step),
        "version": step.version,
        "startedAt": moment(step.started_at),
        "doneAt": moment(step.done_at),
        "failedAt": moment(step.failed_at),
        "failures": step.failures,
        "retryAt": moment(step.retry_at),
    }


def _step_state(step: ClusterStep) -> str:
    if step.done_at:
        return "done"
    if step.failed_at:
        return "failed"
    return "running" if step.is_running else "to come"


def moment(at: datetime | None) -> str | None:
    """Write a moment as Kubernetes does."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if at else None
