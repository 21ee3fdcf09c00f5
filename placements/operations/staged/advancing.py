"""One look at the staged runs of a placement: they begin, and what may start does (lifecycle A.13, B.5)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleetui.events import SYSTEM, Happening, record
from placements.explain.staged_document import answer_facts
from placements.models import ApprovalRequest, Binding, ResourceSnapshot, StagedRun
from placements.operations.placements import PLACEMENT
from placements.operations.rollouts.starting import Content, save_started, started
from placements.operations.snapshotting import take_resource_snapshot
from placements.operations.staged.ending import NO_PLAN, end_answer
from placements.operations.staged.runs import STAGED_RUN
from placements.overriding import applying_to
from placements.queries.hub import selection_for
from placements.rollout.staged import CannotStart
from placements.rollout.staged_actions import next_actions
from placements.rollout.staged_facts import EMPTY, Answer, RunStatus
from placements.rollout.stages import Outcome, run_from_plain
from placements.rollout.stages import StagedRun as Plan
from placements.scheduling.bindings import BindingState
from placements.scheduling.faults import Faults
from placements.scheduling.hub.sanitising import sanitised
from placements.staging import begin, run_facts
from placements.standing import Standing, Versions, standing_of

BUSY_LOOK = timedelta(seconds=10)
IDLE_LOOK = timedelta(minutes=1)
"""While a run waits for somebody, clusters that move to other stages are noticed this often."""


class RunMovedError(Exception):
    """Somebody else looked at the run, or laid hands on it, meanwhile."""


def advance_runs(standing: Standing, *, now: datetime) -> datetime | None:
    """Look at the runs of a placement that have not ended, oldest first; tell when to look again.

    Nothing is done while the placement is paused. Raises RunMovedError.
    """
    if standing.placement.paused_since:
        return None
    looks: list[datetime | None] = []
    runs = list(_active(standing))
    for run in runs:
        if looks:  # what an earlier run started a moment ago has to be seen by this one
            standing = standing_of(standing.placement, now=now)
        others = [other for other in runs if other is not run]
        looks.append(_advance(run, standing, others, now=now))
    return min((look for look in looks if look), default=None)


def _active(standing: Standing) -> Iterator[StagedRun]:
    rows = StagedRun.objects.filter(placement=standing.placement, ended_at=None)
    yield from rows.order_by("pk").prefetch_related("approvals")


def _advance(
    run: StagedRun, standing: Standing, others: Iterable[StagedRun], *, now: datetime
) -> datetime | None:
    """Look at one run; tell when to look again."""
    if run.plan is None:
        begun = _begun(run, standing, now=now)
        if begun is None:
            return now + BUSY_LOOK
        _store(run, begun, now=now)
    plan = run_from_plain(run.plan)
    if plan.outcome:
        return None
    answer = next_actions(plan, run_facts(run, plan, standing, others=others), now)
    _store(run, answer, now=now)
    _start(run, standing, answer, now=now)
    _ask(run, answer, now=now)
    if answer.run.outcome is Outcome.SUCCEEDED:
        _forget_the_cleared(standing, answer.run, now=now)
    return _next_look(answer, now=now)


def _next_look(answer: Answer, *, now: datetime) -> datetime | None:
    if answer.run.outcome:
        return None
    is_idle = answer.status in (RunStatus.INITIALISED, RunStatus.WAITING, RunStatus.STOPPED)
    look = now + (IDLE_LOOK if is_idle else BUSY_LOOK)
    return min(answer.look_again_at or look, look)


def _begun(run: StagedRun, standing: Standing, *, now: datetime) -> Answer | None:
    """Give the plan of a run that begins or cannot; None while the placement is not decided."""
    found = begin(run, standing, {})
    if isinstance(found, CannotStart):
        return end_answer(NO_PLAN, Outcome.FAILED, *found.reasons, now=now) if found.is_final else None
    try:
        target = run.resource_snapshot or _fresh_snapshot(run, standing, now=now)
    except Faults:
        return None
    overrides = applying_to(standing.placement.name, target)
    versions = Versions.of(target, standing.manifest, overrides)
    names = [step.name for stage in found.stages for step in stage.steps]
    plan = begin(run, standing, {name: versions.of_cluster(name) for name in names})
    run.resource_snapshot, run.resource_number = target, target.number
    run.overrides = {name: [one.pk for one in overrides[name]] for name in names if name in overrides}
    return None if isinstance(plan, CannotStart) else Answer(plan, RunStatus.INITIALISED)


def _fresh_snapshot(run: StagedRun, standing: Standing, *, now: datetime) -> ResourceSnapshot:
    """Freeze what the placement selects now. Raises Faults when its selectors are at fault."""
    placement = standing.placement
    selected = selection_for(placement).objects
    by = run.started_by or run.created_by or SYSTEM
    return take_resource_snapshot(placement, tuple(map(sanitised, selected)), by=by, now=now)


def _store(run: StagedRun, answer: Answer, *, now: datetime) -> None:
    """Write where a run stands, unless it has moved on meanwhile."""
    before = (run.plan, run.answer, run.status)
    seen = run.changes
    run.plan, run.answer, run.status = answer.run.to_plain(), answer_facts(answer), answer.status
    run.ended_at = answer.run.ended_at
    run.changes += before != (run.plan, run.answer, run.status)
    rows = StagedRun.objects.filter(pk=run.pk, changes=seen)
    columns = {name: getattr(run, name) for name in _STORED} if run.changes != seen else {"changes": seen}
    if not rows.update(**columns):
        raise RunMovedError
    if run.ended_at:
        after = {"why": [reason.code for reason in answer.run.why]} if answer.run.why else None
        record(Happening(run.status, STAGED_RUN, run.name, after=after), by=None, now=now)


_STORED = (
    "plan",
    "answer",
    "status",
    "ended_at",
    "changes",
    "resource_snapshot_id",
    "resource_number",
    "overrides",
)


@dataclass(frozen=True, slots=True)
class _Start:
    """A start on a cluster; without content a removal."""

    cluster: str
    attempt: int
    content: Content | None = None


def _starts(run: StagedRun, answer: Answer) -> Iterator[_Start]:
    for one in answer.start:
        overrides = run.overrides.get(one.cluster, ())
        yield _Start(one.cluster, one.attempt, Content(one.version, run.resource_snapshot, overrides))
    for gone in answer.remove:
        yield _Start(gone.cluster, gone.attempt)


def _start(run: StagedRun, standing: Standing, answer: Answer, *, now: datetime) -> None:
    """Write down what starts; the calls to the clusters are made later, outside of this transaction."""
    rows = {binding.cluster_name: binding for binding in standing.bindings}
    listed = [one for one in _starts(run, answer) if one.cluster in rows]
    starts = [started(rows[one.cluster], one.content, attempt=one.attempt, now=now) for one in listed]
    if starts:
        save_started(starts, standing)


def _ask(run: StagedRun, answer: Answer, *, now: datetime) -> None:
    """Ask for the approvals that a stage waits for."""
    for wanted in answer.asks:
        request, is_new = ApprovalRequest.objects.get_or_create(
            run=run, stage=wanted.stage, side=wanted.when, defaults={"asked_at": now}
        )
        if is_new:
            after = {"request": str(request)}
            record(Happening("approval asked", STAGED_RUN, run.name, after=after), by=None, now=now)


def _forget_the_cleared(standing: Standing, plan: Plan, *, now: datetime) -> None:
    """End the rows of clusters that have nothing any more, or have left the fleet with what they have."""
    names = [step.name for step in plan.deletions.steps]
    gone = {binding.cluster_name for binding in standing.left_behind}
    rows = Binding.objects.filter(placement=standing.placement, state=BindingState.UNSCHEDULED)
    for start in range(0, len(names), 500):
        part = rows.filter(cluster_name__in=names[start : start + 500])
        part.filter(phase__in=EMPTY).delete()
        part.filter(cluster_name__in=gone).delete()
    left = sorted(gone.intersection(names))
    if left:
        after = {"clusters": left}
        record(Happening("left behind", PLACEMENT, standing.placement.name, after=after), by=None, now=now)
