"""What a staged run does next: `next_actions` (`spec/lifecycle.md` A.12, A.13, B.5.3 to B.5.5).

It is safe to ask at any time, twice, and after a crash: an answer is repeated until the facts show it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from placements.rollout.staged import why_invalid
from placements.rollout.staged_facts import (
    IN_FLIGHT,
    Answer,
    Remove,
    RunFacts,
    RunStatus,
    Slots,
    Start,
    Wait,
    WaitFor,
)
from placements.rollout.staged_steps import Moment
from placements.rollout.stages import STUCK_AFTER, Approval, Outcome, Reason, Stage, StagedRun, When
from placements.scheduling.door.staged_documents import RunState

_STATUS_OF = {
    Outcome.SUCCEEDED: RunStatus.SUCCEEDED,
    Outcome.FAILED: RunStatus.FAILED,
    Outcome.ABANDONED: RunStatus.ABANDONED,
}


def next_actions(run: StagedRun, facts: RunFacts, now: datetime) -> Answer:
    """Say what a run does now, and what it waits for."""
    if run.outcome is not None:
        return _over(run)
    moment = Moment(facts, now)
    run = run.with_current(moment.observed(run.current, removing=run.is_deleting))
    why = _why_failed(run, moment)
    if why:
        return _over(run.ended(Outcome.FAILED, now, *why))
    match facts.state:
        case RunState.INITIALIZE:
            return Answer(run, RunStatus.INITIALISED, waits=(Wait(WaitFor.RUN),))
        case RunState.STOP:
            return _stopped(_noted(run), moment)
        case RunState.RUN:
            return _advance(replace(run, is_stopped=False), moment)


def _over(run: StagedRun) -> Answer:
    return Answer(run, _STATUS_OF[run.outcome or Outcome.FAILED])


def _why_failed(run: StagedRun, moment: Moment) -> tuple[Reason, ...]:
    fresh = moment.facts.fresh
    why = why_invalid(run, fresh) if fresh is not None else ()
    taken = () if run.is_deleting else moment.taken_over(run.current)
    return (*why, Reason("taken-over", taken)) if taken else why


def _noted(run: StagedRun) -> StagedRun:
    """Note when the last cluster of a stage was done: from then on the timed wait counts."""
    stage = run.current
    if run.is_deleting or not stage.steps or not stage.is_updated or stage.updated_at:
        return run
    done = max(step.done_at for step in stage.steps if step.done_at)
    return run.with_current(replace(stage, updated_at=done))


def _stopped(run: StagedRun, moment: Moment) -> Answer:
    """Start nothing, observe what is in flight to its end. A timed wait begins anew when that is reached."""
    stage, facts = run.current, moment.facts
    flying = tuple(
        step.name for step in stage.steps if step.is_running and facts.of(step.name).phase in IN_FLIGHT
    )
    stuck = _stuck(stage, moment.at)
    if flying:
        what = WaitFor.REMOVALS if run.is_deleting else WaitFor.CLUSTERS
        waits = (Wait(what, stage.name, flying),)
        return Answer(run, RunStatus.STOPPING, waits=waits, slots=_slots(run), stuck=stuck)
    if not run.is_stopped:
        run = replace(run, is_stopped=True, stopped_at=moment.at)
    return Answer(run, RunStatus.STOPPED, waits=(Wait(WaitFor.RESUME, stage.name),), slots=_slots(run))


def _advance(run: StagedRun, moment: Moment) -> Answer:
    """Go through the stages until one has something to wait for."""
    while not run.is_deleting:
        position = run.position
        run = _one_stage(run, moment)
        if run.position == position:
            return _answer(run, moment)
    return _deletions(run, moment)


def _one_stage(run: StagedRun, moment: Moment) -> StagedRun:
    """Do for the current stage what can be done now; one without clusters is skipped, approvals and all."""
    stage = run.current
    if not stage.steps:
        return run.with_current(replace(stage, ended_at=moment.at))
    stage = _asking_before(stage, moment)
    if not _is_let_in(stage):
        return run.with_current(stage)
    run = _noted(run.with_current(moment.filled(stage)))
    if not run.current.updated_at:
        return run
    stage = _asking_after(run.current, moment)
    is_over = _is_let_out(stage) and _has_waited(run, moment)
    return run.with_current(replace(stage, ended_at=moment.at) if is_over else stage)


def _asking_before(stage: Stage, moment: Moment) -> Stage:
    if _is_let_in(stage):
        return stage
    asked = stage.asked_before_at or moment.at
    given = _given(Approval(stage.name, When.BEFORE), asked, moment)
    return replace(stage, asked_before_at=asked, approved_before_at=given)


def _asking_after(stage: Stage, moment: Moment) -> Stage:
    if _is_let_out(stage):
        return stage
    asked = stage.asked_after_at or moment.at
    given = _given(Approval(stage.name, When.AFTER), asked, moment)
    return replace(stage, asked_after_at=asked, approved_after_at=given)


def _given(approval: Approval, asked: datetime, moment: Moment) -> datetime | None:
    """Give when it was approved; what was said before the question counts for nothing (lifecycle A.12)."""
    given = moment.facts.approvals.get(approval)
    return given if given is not None and given >= asked else None


def _is_let_in(stage: Stage) -> bool:
    return not stage.needs_approval_before or stage.approved_before_at is not None


def _is_let_out(stage: Stage) -> bool:
    return not stage.needs_approval_after or stage.approved_after_at is not None


def _waits_until(run: StagedRun) -> datetime | None:
    """Give when the timed wait ends: it begins with the last cluster done, anew with a stop (B.5.5)."""
    stage = run.current
    if not stage.updated_at or not stage.wait:
        return None
    return max(stage.updated_at, run.stopped_at or stage.updated_at) + stage.wait


def _has_waited(run: StagedRun, moment: Moment) -> bool:
    until, done = _waits_until(run), run.current.updated_at
    skipped = moment.facts.skipped_waits.get(run.current.name)
    return until is None or until <= moment.at or bool(skipped and done and skipped >= done)


def _answer(run: StagedRun, moment: Moment) -> Answer:
    stage = run.current
    waits = tuple(_waits(run, moment))
    stuck = _stuck(stage, moment.at)
    steps = moment.unseen(stage, removing=False)
    return Answer(
        run,
        _status(waits, stuck),
        start=tuple(Start(step.name, step.version, step.attempt) for step in steps),
        asks=tuple(_asks(stage)),
        waits=waits,
        slots=_slots(run),
        stuck=stuck,
        look_again_at=_next_look(stage, waits, moment.at),
    )


def _asks(stage: Stage) -> Iterator[Approval]:
    if not _is_let_in(stage):
        yield Approval(stage.name, When.BEFORE)
    elif stage.updated_at and not _is_let_out(stage):
        yield Approval(stage.name, When.AFTER)


def _waits(run: StagedRun, moment: Moment) -> Iterator[Wait]:
    stage = run.current
    if not _is_let_in(stage):
        yield Wait(WaitFor.APPROVAL_BEFORE, stage.name)
    elif not stage.updated_at:
        yield from _cluster_waits(stage, moment, WaitFor.CLUSTERS)
    else:
        if not _is_let_out(stage):
            yield Wait(WaitFor.APPROVAL_AFTER, stage.name)
        if not _has_waited(run, moment):
            yield Wait(WaitFor.TIME, stage.name, until=_waits_until(run))


def _cluster_waits(stage: Stage, moment: Moment, what: WaitFor) -> Iterator[Wait]:
    open_steps = [step for step in stage.steps if not step.done_at]
    reached = [step for step in open_steps if moment.facts.of(step.name).is_reachable]
    failed = [step for step in reached if step.retry_at]
    running = tuple(step.name for step in reached if step.is_running and not step.retry_at)
    unreachable = tuple(step.name for step in open_steps if step not in reached)
    if running:
        yield Wait(what, stage.name, running)
    if failed:
        until = min(step.retry_at for step in failed if step.retry_at)
        yield Wait(WaitFor.RETRY, stage.name, tuple(step.name for step in failed), until)
    if unreachable:
        yield Wait(WaitFor.UNREACHABLE, stage.name, unreachable)


def _status(waits: Iterable[Wait], stuck: tuple[str, ...]) -> RunStatus:
    if stuck:
        return RunStatus.STUCK
    busy = {WaitFor.CLUSTERS, WaitFor.REMOVALS, WaitFor.RETRY}
    return RunStatus.PROGRESSING if any(wait.what in busy for wait in waits) else RunStatus.WAITING


def _stuck(stage: Stage, now: datetime) -> tuple[str, ...]:
    return tuple(
        step.name
        for step in stage.steps
        if step.is_running and step.started_at and now - step.started_at >= STUCK_AFTER
    )


def _next_look(stage: Stage, waits: Iterable[Wait], now: datetime) -> datetime | None:
    """Give the next time at which something changes by itself."""
    times = [wait.until for wait in waits if wait.until]
    times += [step.started_at + STUCK_AFTER for step in stage.steps if step.is_running and step.started_at]
    return min((time for time in times if time > now), default=None)


def _slots(run: StagedRun) -> Slots | None:
    if run.is_deleting:
        return None
    stage = run.current
    running = sum(step.is_running for step in stage.steps)
    done = sum(step.done_at is not None for step in stage.steps)
    return Slots(stage.name, len(stage.steps), stage.limit, running, done)


def _deletions(run: StagedRun, moment: Moment) -> Answer:
    """Remove from all clusters at once; those that cannot be reached do not hold up the end (A.1)."""
    stage = moment.emptied(run.deletions)
    run = replace(run, deletions=stage)
    left = tuple(step.name for step in stage.steps if not step.done_at)
    if not any(moment.facts.of(name).is_reachable for name in left):
        over = replace(run, deletions=replace(stage, ended_at=moment.at), may_still_hold=left)
        return _over(over.ended(Outcome.SUCCEEDED, moment.at))
    waits = tuple(_cluster_waits(stage, moment, WaitFor.REMOVALS))
    stuck = _stuck(stage, moment.at)
    steps = moment.unseen(stage, removing=True)
    return Answer(
        run,
        _status(waits, stuck),
        remove=tuple(Remove(step.name, step.attempt) for step in steps),
        waits=waits,
        stuck=stuck,
        look_again_at=_next_look(stage, waits, moment.at),
    )
