"""The time left of rollouts and staged runs.

It is computed by a sync, at most every 15 seconds, and stored with the run, so that its cost does not depend
on the number of viewers.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import QuerySet

from placements.engine.rollout.actions import BlockReason, RollingUpdateResult, RunPhase
from placements.engine.rollout.forecast import WorkSpan, seconds_left
from placements.engine.rollout.staged_run import (
    RunStatus,
    StagedUpdateResult,
    WaitReason,
)
from placements.models import ClusterUpdate, Placement, Rollout, StagedRun

MOST_RUNS = 10
EVERY = timedelta(seconds=15)
_NO_RATE = "no-rate"
_APPROVAL, _PERIOD, _BUDGET, _CLUSTER = "approval", "period", "budget", "cluster"
_BUDGETS = {
    BlockReason.UPDATE_FLOOR,
    BlockReason.REMOVAL_FLOOR,
    BlockReason.CEILING,
    BlockReason.DELETION_LIMIT,
    BlockReason.BEING_REMOVED,
}
_NEVER_END = {
    BlockReason.UNREACHABLE,
    BlockReason.NOT_IN_FLEET,
    BlockReason.NOT_MONITORED,
}


def update_forecast(
    run: Rollout,
    placement: Placement,
    result: RollingUpdateResult,
    *,
    now: datetime,
) -> bool:
    """Compute and store the time left of a rollout in progress if it is due; return whether it changed."""
    before, obstacle = run.eta, _obstacle(result)
    if not _is_due(before, obstacle, now=now):
        return False
    left = None
    if not obstacle:
        waiting = sum(cluster.action is not None for cluster in result.blocked)
        spans = _spans_of(run, placement, result)
        left = seconds_left(spans, waiting=waiting, now=now.timestamp())
    # Why nothing more can start until the next sync; None if nothing is left to start.
    cause = None
    if result.in_progress and all(
        cluster.available_at for cluster in result.in_progress
    ):
        cause = _PERIOD if result.blocked else None
    elif result.blocked:
        cause = (
            _BUDGET
            if any(cluster.reason in _BUDGETS for cluster in result.blocked)
            else _CLUSTER
        )
    past = placement.rollouts.filter(state=Rollout.State.FINISHED)
    after = _eta_after(run, left, past, obstacle=obstacle, now=now)
    run.eta = {**after, "cause": cause, "obstacle": obstacle}
    Rollout.objects.filter(pk=run.pk).update(eta=run.eta)
    return (before.get("left"), before.get("reason")) != (
        after["left"],
        after["reason"],
    )


def eta_of_next(run: Rollout) -> dict[str, Any]:
    """Return the forecast of the rollout that replaces one: none, until the next one of that would be due.

    So edits in quick succession cost no more forecasts than one rollout.
    """
    if not run.eta:
        return {}
    return {name: run.eta[name] for name in ("at", "obstacle")} | {
        "left": None,
        "reason": "",
    }


def _is_due(before: Mapping[str, Any], obstacle: str, *, now: datetime) -> bool:
    return (
        not before
        or obstacle != before["obstacle"]
        or before["reason"] == _NO_RATE  # the first update may have ended since
        or now - datetime.fromisoformat(before["at"]) >= EVERY
    )


def _spans_of(
    run: Rollout, placement: Placement, result: RollingUpdateResult
) -> list[WorkSpan]:
    """Return the work on each cluster of a rollout.

    The row of a cluster whose readiness cannot be observed ends with the rollout; its work ended when the
    period of the strategy had passed.
    """
    in_progress = {cluster.cluster for cluster in result.in_progress}
    rows = ClusterUpdate.objects.filter(rollout=run)
    spans = []
    for name, outcome, started_at, applied_at, ended_at in rows.values_list(
        "cluster_name", "outcome", "started_at", "applied_at", "ended_at"
    ):
        end = ended_at if outcome else None
        has_passed = False
        if not outcome and applied_at and name not in in_progress:
            end = applied_at + placement.unavailable_period
            has_passed = True
        seconds = end.timestamp() if end else None
        spans.append(
            WorkSpan(
                started_at.timestamp(),
                seconds,
                has_passed or outcome in ("available", "removed"),
            )
        )
    return spans


def _eta_after(
    run: Rollout | StagedRun,
    left: float | None,
    past: QuerySet[Rollout] | QuerySet[StagedRun],
    *,
    obstacle: str,
    now: datetime,
) -> dict[str, Any]:
    """Return the time left as it is stored, with the seconds in which nothing could start by their cause.

    Until the run has a rate of its own, it is the median of past runs.
    """
    before: Mapping[str, Any] = run.eta
    waiting = _waiting_at(before, now=now)
    remaining = None if left is None else {"seconds": round(left, 1), "runs": 0}
    if remaining is None and not obstacle:
        newest = past.order_by("-pk").only("eta", "started_at", "ended_at")[:MOST_RUNS]
        durations = [_work_seconds(former) for former in newest]
        passed = (now - (run.started_at or now)).total_seconds() - waiting[_APPROVAL]
        rest = median(durations) - passed if durations else 0.0
        remaining = (
            {"seconds": round(rest, 1), "runs": len(durations)} if rest > 0 else None
        )
    reason = obstacle or ("" if remaining else _NO_RATE)
    return {
        "at": now.isoformat(),
        "left": remaining,
        "reason": reason,
        "waiting": waiting,
    }


def _waiting_at(before: Mapping[str, Any], *, now: datetime) -> dict[str, float]:
    waiting = dict(
        before.get("waiting") or {_APPROVAL: 0, _PERIOD: 0, _BUDGET: 0, _CLUSTER: 0}
    )
    if cause := before.get("cause"):
        passed = (now - datetime.fromisoformat(before["at"])).total_seconds()
        waiting[cause] = round(waiting[cause] + passed, 1)
    return waiting


def _work_seconds(run: Rollout | StagedRun) -> float:
    """Return how long a run that ended has taken, without waiting for approvals."""
    if run.started_at is None or run.ended_at is None:
        return 0.0
    waited: float = (run.eta.get("waiting") or {}).get(_APPROVAL, 0)
    return (run.ended_at - run.started_at).total_seconds() - waited


_CAUSES = {
    WaitReason.APPROVAL_BEFORE: _APPROVAL,
    WaitReason.APPROVAL_AFTER: _APPROVAL,
    WaitReason.TIME: _PERIOD,
}
"""What a staged run waits for; for clusters otherwise."""
# Why a staged run continues after an action of a user only: by its status, or by what it waits for.
_OBSTACLES = {
    RunStatus.INITIALISED: "not-started",
    RunStatus.STOPPED: "paused",
    RunStatus.STOPPING: "paused",
    RunStatus.STUCK: "stalled",
    _APPROVAL: "approval",
}


def staged_eta(
    run: StagedRun, result: StagedUpdateResult, *, now: datetime
) -> dict[str, Any]:
    """Return the time left of a staged run to store: the former one until it is due.

    Timed waits are added. While it waits for an approval there is none; before, nothing is added for those
    that are still needed, `approvals` of them.
    """
    before: dict[str, Any] = run.eta
    if result.run.outcome:
        if not before:
            return before
        return {
            **before,
            "waiting": _waiting_at(before, now=now),
            "at": now.isoformat(),
            "cause": None,
        }
    cause = next((_CAUSES.get(wait.reason, _CLUSTER) for wait in result.waits), None)
    obstacle = _OBSTACLES.get(result.status) or _OBSTACLES.get(cause or "", "")
    is_same = bool(before) and cause == before["cause"]
    if is_same and not _is_due(before, obstacle, now=now):
        return before
    plan = result.run
    spans = [
        WorkSpan(
            step.started_at.timestamp(),
            step.done_at.timestamp() if step.done_at else None,
        )
        for step in plan.steps
        if step.started_at
    ]
    stages = [
        stage
        for stage in (*plan.stages, plan.deletions)
        if not stage.ended_at and stage.steps
    ]
    left = None
    if not obstacle:
        waiting = sum(
            step.started_at is None for stage in stages for step in stage.steps
        )
        left = seconds_left(spans, waiting=waiting, now=now.timestamp())
    if left is not None:
        until = {
            wait.stage: wait.until
            for wait in result.waits
            if wait.reason is WaitReason.TIME
        }
        for stage in stages:
            end = until.get(stage.name)
            left += (
                max(0.0, (end - now).total_seconds())
                if end
                else stage.wait.total_seconds()
            )
    finished = StagedRun.objects.filter(
        placement=run.placement_id, status=RunStatus.SUCCEEDED
    )
    approvals = sum((not stage.may_start) + (not stage.may_end) for stage in stages)
    return {
        **_eta_after(run, left, finished, obstacle=obstacle, now=now),
        "cause": cause,
        "obstacle": obstacle,
        "approvals": approvals,
    }


def _obstacle(result: RollingUpdateResult) -> str:
    """Return why a rollout cannot end without a person; empty if it can."""
    blocks = {cluster.reason for cluster in result.blocked}
    if BlockReason.PAUSED in blocks:
        return "paused"
    if BlockReason.STOPPED in blocks:
        return "stopped"
    has_stalled = result.phase is RunPhase.HALTED or not blocks.isdisjoint(_NEVER_END)
    return "stalled" if has_stalled else ""
