"""Forecasts of the time left of rollouts, and how often former ones were right (`spec/foresight.md` 7).

A forecast is computed by a sync, at most every 15 seconds, and stored with the rollout, so that its cost
does not depend on the number of viewers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Case, F, Max, Q, QuerySet, When

from placements.engine.rollout.actions import BlockReason, Remove, RollingUpdateResult, RunPhase, UpdateReason
from placements.engine.rollout.forecast import FEWEST_CLUSTERS, Step, StepKind, WorkStage, forecast
from placements.engine.rollout.staged_run import (
    RunStatus,
    Stage,
    StagedUpdateResult,
    WaitReason,
    run_from_plain,
)
from placements.models import ClusterUpdate, Placement, Rollout, StagedRun

MOST_RUNS = 10
MOST_DURATIONS = 500
"""The newest ones of each kind; a worker reads them for each rollout, in a storm of edits many a second."""
EVERY = timedelta(seconds=15)
"""One forecast over 100 clusters takes 10 ms, and a worker may have 100 rollouts."""
KEPT_AT = (0, 30, 60)
"""The progress in percent at which a forecast is kept, to be compared with the end."""
MOST_JUDGED = 20
_KINDS: Mapping[str, StepKind] = {
    UpdateReason.ADD: StepKind.ADDITION,
    UpdateReason.NEWER: StepKind.UPDATE,
    UpdateReason.RETRY: StepKind.UPDATE,
    UpdateReason.UPDATE: StepKind.UPDATE,
    "remove": StepKind.REMOVAL,
    "release": StepKind.REMOVAL,
}
_APPROVAL, _PERIOD, _BUDGET, _CLUSTER = "approval", "period", "budget", "cluster"
_BUDGETS = {
    BlockReason.UPDATE_FLOOR,
    BlockReason.REMOVAL_FLOOR,
    BlockReason.CEILING,
    BlockReason.DELETION_LIMIT,
    BlockReason.BEING_REMOVED,
}
_FINISHED = Rollout.State.FINISHED
_NEVER_END = {BlockReason.UNREACHABLE, BlockReason.NOT_IN_FLEET, BlockReason.NOT_MONITORED}


@dataclass(frozen=True, slots=True)
class History:
    """Durations of past steps in seconds by kind, and where they come from: the placement or the fleet."""

    durations: Mapping[StepKind, list[float]]
    runs: int
    source: str
    has_wait: bool
    """Whether steps end by time alone, after the period of the strategy."""


def update_forecast(
    run: Rollout, placement: Placement, result: RollingUpdateResult, *, now: datetime
) -> bool:
    """Compute and store the forecast of a rollout in progress if it is due; return whether it changed."""
    before, obstacle = run.eta, _obstacle(result)
    if not _is_due(before, obstacle, now=now):
        return False
    remaining, reason, progress = _remaining(run, placement, result, obstacle, now=now)
    # Why nothing more can start until the next sync; None if nothing is left to start.
    cause = None
    if result.in_progress and all(one.available_at for one in result.in_progress):
        cause = _PERIOD if result.blocked else None
    elif result.blocked:
        cause = _BUDGET if any(one.reason in _BUDGETS for one in result.blocked) else _CLUSTER
    calibration = before.get("calibration") or calibration_of(placement.rollouts.filter(state=_FINISHED))
    after = _eta_after(before, remaining, reason, progress=progress, now=now)
    run.eta = {**after, "cause": cause, "obstacle": obstacle, "calibration": calibration}
    Rollout.objects.filter(pk=run.pk).update(eta=run.eta)
    return (before.get("remaining"), before.get("reason")) != (remaining, reason)


def eta_of_next(run: Rollout) -> dict[str, Any]:
    """Return the forecast of the rollout that replaces one: none, until the next one of that would be due.

    So edits in quick succession cost no more forecasts than one rollout.
    """
    if not run.eta:
        return {}
    return {name: run.eta[name] for name in ("at", "obstacle")} | {"remaining": None, "reason": ""}


def _is_due(before: Mapping[str, Any], obstacle: str, *, now: datetime) -> bool:
    if not before or obstacle != before["obstacle"]:
        return True
    return now - datetime.fromisoformat(before["at"]) >= EVERY


def _eta_after(
    before: Mapping[str, Any], remaining: dict[str, Any] | None, reason: str, *, progress: int, now: datetime
) -> dict[str, Any]:
    """Return a forecast as it is stored, with the seconds in which nothing could start by their cause.

    The forecasts at the start and at some progress are kept beside it, to be compared with the end.
    """
    waiting = dict(before.get("waiting") or {_APPROVAL: 0, _PERIOD: 0, _BUDGET: 0, _CLUSTER: 0})
    if before and (former := before.get("cause")):
        passed = (now - datetime.fromisoformat(before["at"])).total_seconds()
        waiting[former] = round(waiting[former] + passed, 1)
    kept = list(before.get("kept", ()))
    due = [percent for percent in KEPT_AT if percent <= progress]
    if remaining and due and due[-1] not in [one["progress"] for one in kept]:
        facts = {"progress": due[-1], "at": now.isoformat(), "approval": waiting[_APPROVAL]}
        kept.append({**facts, **remaining})
    return {"at": now.isoformat(), "remaining": remaining, "reason": reason, "waiting": waiting, "kept": kept}


_CAUSES = {
    WaitReason.APPROVAL_BEFORE: _APPROVAL,
    WaitReason.APPROVAL_AFTER: _APPROVAL,
    WaitReason.TIME: _PERIOD,
}
"""What a staged run waits for; for clusters otherwise."""
_OBSTACLES = {
    RunStatus.INITIALISED: "not-started",
    RunStatus.STOPPED: "stopped",
    RunStatus.STOPPING: "stopped",
    RunStatus.STUCK: "stalled",
}


def staged_eta(run: StagedRun, result: StagedUpdateResult, *, now: datetime) -> dict[str, Any]:
    """Return the forecast of a staged run to store: the former one until it is due.

    Stages follow each other, each with its concurrency and its timed wait. Nothing is added for approvals;
    `approvals` is how many are still needed.
    """
    before: dict[str, Any] = run.eta
    if result.run.outcome:
        if not before:
            return before
        ended = _eta_after(before, before["remaining"], before["reason"], progress=-1, now=now)
        return {**before, **ended, "cause": None}
    obstacle = _OBSTACLES.get(result.status, "")
    if not _is_due(before, obstacle, now=now):
        return before
    plan = result.run
    left = [stage for stage in (*plan.stages, plan.deletions) if not stage.ended_at]
    remaining, reason = None, obstacle or ("small" if len(plan.steps) < FEWEST_CLUSTERS else "")
    if not reason and any(not step.done_at for stage in left for step in stage.steps):
        kinds = [
            kind
            for kind, stages in ((StepKind.UPDATE, plan.stages), (StepKind.REMOVAL, (plan.deletions,)))
            if any(not step.done_at for stage in stages for step in stage.steps)
        ]
        history = staged_history_of(run, frozenset(kinds))
        reason = "" if history else "no-history"
        if history:
            timed = {one.stage: one.until for one in result.waits if one.reason is WaitReason.TIME}
            stages = [
                _work_stage(one, timed.get(one.name), is_last=one is plan.deletions, now=now) for one in left
            ]
            remaining = _forecast_from(history, stages, run)
    approvals = sum(bool(stage.steps) * ((not stage.may_start) + (not stage.may_end)) for stage in left)
    cause = next((_CAUSES.get(one.reason, _CLUSTER) for one in result.waits), None)
    finished = StagedRun.objects.filter(placement=run.placement_id, status=RunStatus.SUCCEEDED)
    calibration = before.get("calibration") or calibration_of(finished)
    done = sum(step.done_at is not None for step in plan.steps)
    progress = 100 * done // max(1, len(plan.steps))
    more = {"cause": cause, "obstacle": obstacle, "approvals": approvals, "calibration": calibration}
    return {**_eta_after(before, remaining, reason, progress=progress, now=now), **more}


def _work_stage(stage: Stage, until: datetime | None, *, is_last: bool, now: datetime) -> WorkStage:
    """Return the work that is left of a stage; `until` is when its timed wait ends, if that has started."""
    kind = StepKind.REMOVAL if is_last else StepKind.UPDATE
    steps = [
        Step(kind, (now - one.started_at).total_seconds() if one.started_at else None)
        for one in stage.steps
        if not one.done_at
    ]
    rest = max(0.0, (until - now).total_seconds()) if until else stage.wait.total_seconds()
    limit = max(1, len(steps)) if is_last else stage.limit
    return WorkStage(steps, additions=0, others=limit, wait=rest if stage.steps else 0.0)


def staged_history_of(run: StagedRun, kinds: frozenset[StepKind]) -> History | None:
    """Return durations of the last ten staged runs of the placement, else of rolling updates of the fleet."""
    past = StagedRun.objects.filter(placement=run.placement_id, ended_at__isnull=False, plan__isnull=False)
    by_kind: dict[StepKind, list[float]] = {}
    runs = 0
    for plan in past.exclude(pk=run.pk).order_by("-pk").values_list("plan", flat=True)[:MOST_RUNS]:
        past_run = run_from_plain(plan)
        for kind, stages in ((StepKind.UPDATE, past_run.stages), (StepKind.REMOVAL, (past_run.deletions,))):
            seconds = [
                (one.done_at - one.started_at).total_seconds()
                for stage in stages
                for one in stage.steps
                if one.started_at and one.done_at
            ]
            by_kind[kind] = (by_kind.get(kind, []) + seconds)[:MOST_DURATIONS]
        runs += any(step.done_at for step in past_run.steps)
    has_all = kinds <= {kind for kind, values in by_kind.items() if values}
    if has_all and sum(len(by_kind[kind]) for kind in kinds) >= FEWEST_CLUSTERS:
        return History({kind: by_kind[kind] for kind in kinds}, runs, "placement", has_wait=False)
    steps = _past_steps(None, kinds, before=Rollout.objects.aggregate(last=Max("pk"))["last"] or 0)
    if kinds <= steps.keys() and sum(len(steps[kind]) for kind in kinds) >= FEWEST_CLUSTERS:
        of_fleet = {kind: [one.seconds for one in steps[kind]] for kind in kinds}
        several_runs = {one.rollout for kind in kinds for one in steps[kind]}
        return History(of_fleet, len(several_runs), "fleet", has_wait=False)
    return None


def _obstacle(result: RollingUpdateResult) -> str:
    """Return why a rollout cannot end without a person; empty if it can."""
    blocks = {one.reason for one in result.blocked}
    if BlockReason.PAUSED in blocks:
        return "paused"
    if BlockReason.STOPPED in blocks:
        return "stopped"
    has_stalled = result.phase is RunPhase.HALTED or not blocks.isdisjoint(_NEVER_END)
    return "stalled" if has_stalled else ""


def _remaining(
    run: Rollout, placement: Placement, result: RollingUpdateResult, obstacle: str, *, now: datetime
) -> tuple[dict[str, Any] | None, str, int]:
    """Return the forecast as it is stored or why there is none, and the progress in percent."""
    rows = ClusterUpdate.objects.filter(rollout=run, outcome="")
    columns = ("cluster_name", "what", "started_at", "applied_at")
    open_updates = {one.cluster_name: one for one in rows.only("rollout", *columns)}
    ended = ClusterUpdate.objects.filter(rollout=run).exclude(outcome="").values("cluster_name").distinct()
    available_at = {one.cluster: one.available_at for one in result.in_progress}
    done, waiting = ended.count(), [one for one in result.blocked if one.action is not None]
    clusters = done + len(open_updates) + len(waiting)
    progress = 100 * done // max(1, clusters)
    if reason := obstacle or ("small" if clusters < FEWEST_CLUSTERS else ""):
        return None, reason, progress
    kinds = [
        StepKind.REMOVAL if isinstance(one.action, Remove) else _KINDS[one.action.reason]
        for one in waiting
        if one.action
    ]
    needed = frozenset([*kinds, *[_KINDS[one.what] for one in open_updates.values()]])
    history = history_of(placement.pk, run.pk, needed, placement.uid)
    if history is None:
        return None, "no-history", progress

    wait = placement.unavailable_period.total_seconds() if history.has_wait else 0.0
    steps = []
    for name, one in open_updates.items():
        at = available_at.get(name) if one.applied_at else None
        left = max(0.0, (at - now).total_seconds()) if at else None
        steps.append(Step(_KINDS[one.what], (now - one.started_at).total_seconds(), left, wait))
    steps += [Step(kind, wait=wait) for kind in kinds]
    budgets = result.budgets
    additions = sum(_KINDS[one.what] is StepKind.ADDITION for one in open_updates.values())
    room = budgets.deletion.allowed if budgets.deletion else budgets.updates.allowed
    stage = WorkStage(steps, budgets.additions.allowed + additions, room + len(open_updates) - additions)
    return _forecast_from(history, [stage], run), "", progress


def _forecast_from(history: History, stages: list[WorkStage], run: Rollout | StagedRun) -> dict[str, Any]:
    """Return the forecast of these stages as it is stored, with what it is based on."""
    estimate = forecast(stages, history.durations, runs=history.runs, seed=run.pk)
    clusters = sum(map(len, history.durations.values()))
    basis = {"runs": history.runs, "clusters": clusters, "source": history.source}
    numbers = {name: round(getattr(estimate, name), 1) for name in ("p10", "p50", "p90")}
    return {**numbers, "slower": estimate.slower, "basis": basis}


@lru_cache(maxsize=128)
def history_of(placement: int, run: int, kinds: frozenset[StepKind], _uid: UUID) -> History | None:
    """Return durations of the last ten runs of the placement, else of the fleet.

    None if a kind has none, or if all are fewer than the clusters of the smallest rollout with a forecast.

    They do not change during a rollout; the UID distinguishes placements whose primary key is used again.
    """
    past = Rollout.objects.filter(placement=placement).exclude(pk=run).exclude(state=Rollout.State.RUNNING)
    own = list(past.order_by("-number").values_list("pk", flat=True)[:MOST_RUNS])
    for source, rollouts in (("placement", own), ("fleet", None)):
        by_kind = _past_steps(rollouts, kinds, before=run)
        steps = [step for kind in kinds for step in by_kind.get(kind, ())]
        if kinds and kinds <= by_kind.keys() and len(steps) >= FEWEST_CLUSTERS:
            return History(
                {kind: [step.seconds for step in by_kind[kind]] for kind in kinds},
                len({step.rollout for step in steps}),
                source,
                has_wait=2 * sum(step.ends_by_time for step in steps) > len(steps),
            )
    return None


class _PastStep(NamedTuple):
    rollout: int
    seconds: float
    ends_by_time: bool


def _past_steps(
    rollouts: list[int] | None, kinds: frozenset[StepKind], *, before: int
) -> dict[StepKind, list[_PastStep]]:
    """Return the newest steps of these rollouts, or of all of the fleet that are older than a rollout."""
    rows = ClusterUpdate.objects.filter(
        outcome__in=("available", "removed"),
        rollout__ended_at__isnull=False,
        what__in=[what for what, kind in _KINDS.items() if kind in kinds],
    )
    rows = rows.filter(rollout__in=rollouts) if rollouts is not None else rows.filter(rollout__lt=before)
    # What cannot be observed ends with the rollout; its work ended when it was applied.
    by_time = Q(applied_at__isnull=False, ended_at=F("rollout__ended_at"))
    rows = rows.annotate(ends_by_time=by_time, done_at=Case(When(by_time, "applied_at"), default="ended_at"))
    by_kind: dict[StepKind, list[_PastStep]] = {}
    newest = rows.order_by("-pk").values_list("rollout_id", "what", "started_at", "done_at", "ends_by_time")
    for rollout, what, started_at, done_at, ends_by_time in newest[: MOST_DURATIONS * len(kinds)]:
        of_kind = by_kind.setdefault(_KINDS[what], [])
        if len(of_kind) < MOST_DURATIONS:
            of_kind.append(_PastStep(rollout, (done_at - started_at).total_seconds(), ends_by_time))
    return by_kind


def calibration_of(finished: QuerySet[Rollout] | QuerySet[StagedRun]) -> dict[str, int]:
    """Return how many of the last forecasts were right: the work ended between p10 and p90.

    Seconds in which a run waited for an approval are no work.
    """
    right = judged = 0
    for run in finished.order_by("-pk").only("eta", "ended_at")[:MOST_JUDGED]:
        for one in run.eta.get("kept", ()):
            assert run.ended_at is not None  # noqa: S101 -- the caller selects runs that ended
            took = (run.ended_at - datetime.fromisoformat(one["at"])).total_seconds()
            took -= run.eta["waiting"][_APPROVAL] - one["approval"]
            judged, right = judged + 1, right + (one["p10"] <= took <= one["p90"])
    return {"right": right, "judged": judged}
