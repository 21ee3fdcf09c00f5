"""The next actions of a staged update run (`rules/lifecycle.md#actions`).

Idempotent: the same result is returned until the state of the clusters changes, also after a crash.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from placements.engine.rollout.actions import Action, Remove, StartUpdate, UpdateReason
from placements.engine.rollout.staged_run import (
    STUCK_AFTER,
    Approval,
    ApprovalPoint,
    ClusterStep,
    RunStatus,
    Stage,
    StageConcurrency,
    StagedRunOutcome,
    StagedRunPlan,
    StagedRunState,
    StagedUpdateResult,
    StageReason,
    Wait,
    WaitReason,
    why_invalid,
)
from placements.engine.rollout.state import IN_FLIGHT, ClusterState, Phase
from placements.manifests.staged_update import RunState


def next_actions(state: StagedRunState) -> StagedUpdateResult:
    """Return what a run does now, and what it waits for."""
    run = state.run
    if run.outcome is not None:
        return ended(run)
    sequence = 1 + max(
        (step.sequence for other in state.others for step in other.steps), default=0
    )
    planner = StagedPlanner(state, sequence)
    run = run.with_current(planner.observe(run.current, removing=run.is_deleting))
    reasons = (
        why_invalid(run, state.revalidated) if state.revalidated is not None else ()
    )
    taken_over = () if run.is_deleting else planner.taken_over(run.current)
    if taken_over:
        reasons = (*reasons, StageReason("taken-over", taken_over))
    if reasons:
        return ended(run.end(StagedRunOutcome.FAILED, state.at, *reasons))
    match state.spec_state:
        case RunState.INITIALIZE:
            return StagedUpdateResult(
                run, RunStatus.INITIALISED, waits=(Wait(WaitReason.RUN),)
            )
        case RunState.STOP:
            return planner.stop(_with_updated_at(run))
        case RunState.RUN:
            return planner.advance(replace(run, is_stopped=False))


def ended(run: StagedRunPlan) -> StagedUpdateResult:
    return StagedUpdateResult(run, RunStatus(run.outcome or StagedRunOutcome.FAILED))


def _with_updated_at(run: StagedRunPlan) -> StagedRunPlan:
    """Record when the last cluster of a stage was done: from then on the timed wait counts."""
    stage = run.current
    if run.is_deleting or not stage.steps or not stage.is_updated or stage.updated_at:
        return run
    done = max(step.done_at for step in stage.steps if step.done_at)
    return run.with_current(replace(stage, updated_at=done))


@dataclass(frozen=True, slots=True)
class StagedPlanner:
    """The decisions about a run in one state of the clusters; `sequence` is that of starts in it."""

    state: StagedRunState
    sequence: int

    def observe(self, stage: Stage, *, removing: bool) -> Stage:
        running = [step for step in stage.steps if step.is_running]
        return stage.with_steps(
            {step.name: self.observe_step(step, removing) for step in running}
        )

    def observe_step(self, step: ClusterStep, removing: bool) -> ClusterStep:
        cluster = self.state.cluster(step.name)
        if (
            not cluster.is_reachable
        ):  # neither done nor failed (`rules/lifecycle.md#terms`)
            return step
        reported_at = (
            cluster.untrackable_since
            if _is_untrackable(cluster)
            else cluster.phase_changed_at
        )
        since = max(reported_at or self.state.at, step.started_at or self.state.at)
        if self._is_done(step, removing=removing):
            return replace(step, done_at=since, failed_at=None)
        is_ours = removing or (cluster.running or "") == step.version
        is_of_last_try = is_ours and cluster.attempts >= step.attempt
        has_failed = cluster.has_failed and step.failed_at is None and is_of_last_try
        return step.fail(since) if has_failed else step

    def taken_over(self, stage: Stage) -> tuple[str, ...]:
        """Return the clusters that something else has brought to another version.

        See `rules/lifecycle.md#staged-update-runs`.

        That is a version that this run neither brought nor found there; what it found may also come back:
        then it counts whether another run started it there since.
        """
        names = []
        for step in stage.steps:
            version = self.state.cluster(step.name).running
            if not step.is_running or not version or version == step.version:
                continue
            theirs = (
                other
                for run in self.state.others
                for other in run.steps
                if other.name == step.name
            )
            if version != step.before or any(
                other.started_at
                and other.version == version
                and other.sequence > step.sequence
                for other in theirs
            ):
                names.append(step.name)
        return tuple(names)

    def stop(self, run: StagedRunPlan) -> StagedUpdateResult:
        """Start nothing, observe what is in flight until it ends. A timed wait restarts after that."""
        stage = run.current
        running = [
            self.state.cluster(step.name) for step in stage.steps if step.is_running
        ]
        in_flight = tuple(
            cluster.name
            for cluster in running
            if cluster.phase in IN_FLIGHT and not _is_untrackable(cluster)
        )
        if in_flight:
            reason = WaitReason.REMOVALS if run.is_deleting else WaitReason.CLUSTERS
            waits, concurrency = (
                (Wait(reason, stage.name, in_flight),),
                _concurrency(run),
            )
            stopping = StagedUpdateResult(
                run, RunStatus.STOPPING, waits=waits, concurrency=concurrency
            )
            return replace(stopping, stuck=self._stuck(stage))
        if not run.is_stopped:
            run = replace(run, is_stopped=True, stopped_at=self.state.at)
        waits = (Wait(WaitReason.RESUME, stage.name),)
        return StagedUpdateResult(
            run, RunStatus.STOPPED, waits=waits, concurrency=_concurrency(run)
        )

    def advance(self, run: StagedRunPlan) -> StagedUpdateResult:
        """Process the stages until one has to wait."""
        while not run.is_deleting:
            position = run.position
            run = self.advance_stage(run)
            if run.position == position:
                return self.stage_result(run)
        return self.delete(run)

    def advance_stage(self, run: StagedRunPlan) -> StagedRunPlan:
        """Do for the current stage what can be done now; one without clusters is skipped with its gates.

        An approval counts once it was requested (`rules/lifecycle.md#actions`), whatever the clocks show.
        """
        stage = run.current
        if not stage.steps:
            return run.with_current(replace(stage, ended_at=self.state.at))
        if not stage.may_start:
            approval, requested = (
                Approval(stage.name, ApprovalPoint.BEFORE),
                stage.requested_before_at,
            )
            approved = self.state.approvals.get(approval) if requested else None
            stage = replace(
                stage,
                requested_before_at=requested or self.state.at,
                approved_before_at=approved,
            )
        if not stage.may_start:
            return run.with_current(stage)

        run = _with_updated_at(run.with_current(self.start_clusters(stage)))
        stage = run.current
        if not stage.updated_at:
            return run
        if not stage.may_end:
            approval, requested = (
                Approval(stage.name, ApprovalPoint.AFTER),
                stage.requested_after_at,
            )
            approved = self.state.approvals.get(approval) if requested else None
            stage = replace(
                stage,
                requested_after_at=requested or self.state.at,
                approved_after_at=approved,
            )
        is_over = stage.may_end and self._has_waited(run)
        return run.with_current(
            replace(stage, ended_at=self.state.at) if is_over else stage
        )

    def _has_waited(self, run: StagedRunPlan) -> bool:
        until, skipped = (
            _waits_until(run),
            self.state.skipped_waits.get(run.current.name),
        )
        return (
            until is None or until <= self.state.at or skipped == run.current.updated_at
        )

    def start_clusters(self, stage: Stage) -> Stage:
        """Start as many clusters as may run at once, in their order; what failed is tried again when due.

        A cluster that has the version already is done without having been started. An unreachable one is
        left for later; one that was started keeps its place, so that a bad version does not continue to the
        next.
        """
        waiting = [
            step for step in stage.steps if step.is_waiting and self._is_reachable(step)
        ]
        present = [step for step in waiting if self._is_done(step, removing=False)]
        stage = stage.with_steps({step.name: self._done(step) for step in present})
        free = stage.limit - sum(step.is_running for step in stage.steps)
        reachable = [
            step for step in stage.steps if step.is_waiting and self._is_reachable(step)
        ]
        ready = [
            step
            for step in reachable
            if self.state.cluster(step.name).phase is not Phase.REMOVING
        ]
        started = {step.name: self._start(step) for step in ready[: max(0, free)]}
        return self._retry(stage.with_steps(started))

    def _retry(self, stage: Stage) -> Stage:
        """Try failed clusters again that are due, or for which a user requests it."""
        due = {}
        for step in stage.steps:
            if (
                step.failed_at is None
                or step.retry_at is None
                or not self._is_reachable(step)
            ):
                continue
            if (
                step.retry_at <= self.state.at
                or self.state.retries.get(step.name) == step.failures
            ):
                due[step.name] = replace(step, failed_at=None)
        return stage.with_steps(due)

    def stage_result(self, run: StagedRunPlan) -> StagedUpdateResult:
        stage, approvals, waits = run.current, [], []
        if not stage.may_start:
            approvals.append(Approval(stage.name, ApprovalPoint.BEFORE))
            waits.append(Wait(WaitReason.APPROVAL_BEFORE, stage.name))
        elif not stage.updated_at:
            waits += self._cluster_waits(stage, WaitReason.CLUSTERS)
        else:
            if not stage.may_end:
                approvals.append(Approval(stage.name, ApprovalPoint.AFTER))
                waits.append(Wait(WaitReason.APPROVAL_AFTER, stage.name))
            if not self._has_waited(run):
                waits.append(Wait(WaitReason.TIME, stage.name, until=_waits_until(run)))
        actions = []
        for step in self._not_shown(stage, removing=False):
            is_empty = not self.state.cluster(step.name).has_resources
            reason = UpdateReason.ADD if is_empty else UpdateReason.UPDATE
            reason = UpdateReason.RETRY if step.attempt > 1 else reason
            actions.append(StartUpdate(step.name, step.version, reason, step.attempt))
        return self._result(
            run, waits, actions=tuple(actions), approvals=tuple(approvals)
        )

    def delete(self, run: StagedRunPlan) -> StagedUpdateResult:
        """Remove from all reachable clusters at once; unreachable ones do not delay the end.

        See `rules/lifecycle.md#terms`.
        """
        stage = run.deletions
        left = [
            step
            for step in stage.steps
            if not step.done_at and self._is_reachable(step)
        ]
        empty = {step.name for step in left if self._is_done(step, removing=True)}
        started = {
            step.name: self._done(step) if step.name in empty else self._start(step)
            for step in left
            if step.is_waiting or step.name in empty
        }
        stage = self._retry(stage.with_steps(started))
        run = replace(run, deletions=stage)
        remaining = [step for step in stage.steps if not step.done_at]
        if not any(self._is_reachable(step) for step in remaining):
            run = replace(
                run,
                deletions=replace(stage, ended_at=self.state.at),
                may_still_hold=tuple(step.name for step in remaining),
            )
            return ended(run.end(StagedRunOutcome.SUCCEEDED, self.state.at))
        actions = tuple(
            Remove(step.name, step.attempt)
            for step in self._not_shown(stage, removing=True)
        )
        waits = list(self._cluster_waits(stage, WaitReason.REMOVALS))
        return self._result(run, waits, actions=actions)

    def _result(
        self,
        run: StagedRunPlan,
        waits: list[Wait],
        *,
        actions: tuple[Action, ...],
        approvals: tuple[Approval, ...] = (),
    ) -> StagedUpdateResult:
        stage = run.current
        stuck = self._stuck(stage)
        busy = {WaitReason.CLUSTERS, WaitReason.REMOVALS, WaitReason.RETRY}
        status = (
            RunStatus.PROGRESSING
            if any(wait.reason in busy for wait in waits)
            else RunStatus.WAITING
        )
        away = {WaitReason.UNREACHABLE, WaitReason.NOT_MONITORED}
        has_stalled = stuck or (waits and all(wait.reason in away for wait in waits))
        running = [step for step in stage.steps if step.is_running and step.started_at]
        times = [wait.until for wait in waits if wait.until]
        times += [step.started_at + STUCK_AFTER for step in running if step.started_at]
        return StagedUpdateResult(
            run,
            RunStatus.STUCK if has_stalled else status,
            approvals=approvals,
            waits=tuple(waits),
            concurrency=_concurrency(run),
            stuck=stuck,
            actions=actions,
            requeue_at=min(
                (time for time in times if time > self.state.at), default=None
            ),
        )

    def _cluster_waits(self, stage: Stage, reason: WaitReason) -> Iterator[Wait]:
        open_steps = [step for step in stage.steps if not step.done_at]
        reachable = [step for step in open_steps if self._is_reachable(step)]
        running = tuple(
            step.name for step in reachable if step.is_running and not step.retry_at
        )
        retries = {step.name: step.retry_at for step in reachable if step.retry_at}
        away = [step.name for step in open_steps if not self._is_reachable(step)]
        unreachable = tuple(
            name for name in away if self.state.cluster(name).has_driver
        )
        not_monitored = tuple(name for name in away if name not in unreachable)
        if running:
            yield Wait(reason, stage.name, running)
        if retries:
            yield Wait(
                WaitReason.RETRY, stage.name, tuple(retries), min(retries.values())
            )
        if unreachable:
            yield Wait(WaitReason.UNREACHABLE, stage.name, unreachable)
        if not_monitored:
            yield Wait(WaitReason.NOT_MONITORED, stage.name, not_monitored)

    def _not_shown(self, stage: Stage, *, removing: bool) -> Iterator[ClusterStep]:
        """Yield the steps that were started, now or before, and of which the cluster shows nothing yet.

        It shows the work of the last attempt, or is still busy with an older removal.
        """
        for step in stage.steps:
            cluster = self.state.cluster(step.name)
            if (
                not step.is_running
                or step.failed_at is not None
                or not cluster.is_reachable
            ):
                continue
            if removing or cluster.phase is Phase.REMOVING:
                is_shown = cluster.phase is Phase.REMOVING
            else:
                is_ours = (cluster.running or "") == step.version
                is_shown = is_ours and cluster.has_resources and not cluster.has_failed
            if not is_shown:
                yield step

    def _stuck(self, stage: Stage) -> tuple[str, ...]:
        running = [step for step in stage.steps if step.is_running and step.started_at]
        since = self.state.at - STUCK_AFTER
        return tuple(
            step.name
            for step in running
            if step.started_at and step.started_at <= since
        )

    def _start(self, step: ClusterStep) -> ClusterStep:
        return step.start(
            self.state.at, self.state.cluster(step.name).running or "", self.sequence
        )

    def _done(self, step: ClusterStep) -> ClusterStep:
        return replace(self._start(step), done_at=self.state.at)

    def _is_reachable(self, step: ClusterStep) -> bool:
        return self.state.cluster(step.name).is_reachable

    def _is_done(self, step: ClusterStep, *, removing: bool) -> bool:
        cluster = self.state.cluster(step.name)
        if removing:
            return not cluster.has_resources
        is_available = cluster.phase is Phase.AVAILABLE or _is_untrackable(cluster)
        return is_available and (cluster.running or "") == step.version


def _is_untrackable(cluster: ClusterState) -> bool:
    """Return whether readiness is untrackable: such a cluster counts as available once applied.

    See `rules/lifecycle.md#staged-update-runs`.
    """
    return cluster.phase is Phase.APPLIED and cluster.untrackable_since is not None


def _waits_until(run: StagedRunPlan) -> datetime | None:
    """Return when the timed wait ends: it starts with the last cluster done, again with a stop.

    See `rules/lifecycle.md#staged-update-runs`.
    """
    stage = run.current
    if not stage.updated_at or not stage.wait:
        return None
    return max(stage.updated_at, run.stopped_at or stage.updated_at) + stage.wait


def _concurrency(run: StagedRunPlan) -> StageConcurrency | None:
    if run.is_deleting:
        return None
    stage = run.current
    running = sum(step.is_running for step in stage.steps)
    done = sum(step.done_at is not None for step in stage.steps)
    return StageConcurrency(
        stage.limit, running, stage=stage.name, clusters=len(stage.steps), done=done
    )
