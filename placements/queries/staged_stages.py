"""The stages of a staged run for its page: how far each is, what it waits for, which clusters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Max, Sum

from placements.explain.stage_words import StageWords, duration_words, stage_words
from placements.models import ApprovalRequest, Binding, StagedRun
from placements.rollout.staged_facts import Answer, RunStatus, WaitFor
from placements.rollout.stages import ClusterStep, Stage, When
from placements.rollout.stages import StagedRun as Plan
from placements.staging import strategy_of

ROWS, MORE_ROWS = 20, 50
DONE, CURRENT, TO_COME, SKIPPED, NOT_REACHED = "done", "current", "to come", "skipped", "not reached"
NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows of a stage are wanted: from where on, and how many."""

    stage: str
    first: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """Something that a stage waits for; `until` is when a timed wait ends, `request` what was asked."""

    words: str
    state: str
    request: ApprovalRequest | None = None
    until: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        """Tell whether it is what the run waits for now."""
        return self.state == CURRENT


@dataclass(frozen=True, slots=True)
class StepView:
    """One cluster of a stage: how far it is, how long that took or takes, why it waits."""

    step: ClusterStep
    state: str
    phase: str
    since: datetime | None
    until: datetime | None
    message: str
    why: str

    @property
    def has_failed(self) -> bool:
        """Tell whether it can be tried again."""
        return self.step.failed_at is not None and self.step.done_at is None


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage of a run, with some of its clusters; without words it is the stage that takes away."""

    number: int
    stage: Stage
    words: StageWords | None
    state: str
    before: TaskView | None
    after: tuple[TaskView, ...]
    rows: tuple[StepView, ...]
    first: int

    @property
    def waits_for_somebody(self) -> bool:
        """Tell whether an approval is asked for, and nobody has given it."""
        tasks = [*([self.before] if self.before else []), *self.after]
        return any(task.is_waiting and task.request for task in tasks)

    @property
    def total(self) -> int:
        """Give the number of its clusters."""
        return len(self.stage.steps)

    @property
    def done(self) -> int:
        """Give how many of them are done."""
        return sum(step.done_at is not None for step in self.stage.steps)

    @property
    def running(self) -> int:
        """Give how many were started and are not done."""
        return sum(step.is_running for step in self.stage.steps)

    @property
    def last(self) -> int:
        """Give the number of the last row that is shown."""
        return self.first + len(self.rows)

    @property
    def earlier(self) -> int | None:
        """Give where the rows before these begin; None where there are none."""
        return max(0, self.first - MORE_ROWS) if self.first else None

    @property
    def later(self) -> int | None:
        """Give where the rows after these begin; None where there are none."""
        return self.last if self.last < self.total else None


def pulse_of(name: str) -> str:
    """Give what moves with everything that the page of a run shows. Empty without such a run."""
    rows = StagedRun.objects.filter(name=name)
    found = rows.values_list("changes", "placement_id", "placement__revision").first()
    if found is None:
        return ""
    changes, placement, revision = found
    seen = Binding.objects.filter(placement=placement).aggregate(at=Max("phase_since"), tries=Sum("attempts"))
    at = int(seen["at"].timestamp() * 1000) if seen["at"] else 0
    return f"{changes}.{revision or 0}.{at}.{seen['tries'] or 0}"


def stages_of(run: StagedRun, answer: Answer, window: Window | None) -> list[StageView]:
    """Give every stage; the last one takes away, and is left out where nothing is to be taken."""
    specs = {spec.name: spec for spec in strategy_of(run).stages}
    requests = {(one.stage, one.side): one for one in run.approvals.all()}
    view = _View(answer, requests, window)
    plan = answer.run
    found = [
        view.of(number, stage, stage_words(specs[stage.name], clusters=len(stage.steps)))
        for number, stage in enumerate(plan.stages, 1)
    ]
    if plan.deletions.steps:
        found.append(view.of(len(found) + 1, plan.deletions, None))
    return _with_bindings(run, found)


@dataclass(frozen=True, slots=True)
class _View:
    """What every stage of one run is seen with."""

    answer: Answer
    requests: Mapping[tuple[str, str], ApprovalRequest]
    window: Window | None

    def of(self, number: int, stage: Stage, words: StageWords | None) -> StageView:
        """Give one stage."""
        steps, first = self._shown(stage)
        rows = tuple(_step(step, stage, self.answer) for step in steps)
        state = _stage_state(self.answer, stage)
        return StageView(
            number, stage, words, state, self._before(stage), (*self._after(stage),), rows, first
        )

    def _shown(self, stage: Stage) -> tuple[Sequence[ClusterStep], int]:
        """Give the rows asked for; otherwise those from the first cluster on that is not done."""
        steps = stage.steps
        if self.window and self.window.stage == stage.name:
            first = self.window.first if self.window.first < len(steps) else 0
            return steps[first : first + MORE_ROWS], first
        if len(steps) <= ROWS:
            return steps, 0
        first = next((index for index, step in enumerate(steps) if not step.done_at), 0)
        first = min(first, len(steps) - ROWS)
        return steps[first : first + ROWS], first

    def _before(self, stage: Stage) -> TaskView | None:
        if not stage.needs_approval_before or not stage.steps:
            return None
        return self._approval(stage, When.BEFORE)

    def _after(self, stage: Stage) -> Iterator[TaskView]:
        if stage.wait and stage.steps:
            yield self._timed(stage)
        if stage.needs_approval_after and stage.steps:
            yield self._approval(stage, When.AFTER)

    def _approval(self, stage: Stage, side: When) -> TaskView:
        request = self.requests.get((stage.name, str(side)))
        if request is not None and request.approved_at:
            return TaskView("approval", DONE, request)
        if self.answer.run.outcome:
            return TaskView("approval", NOT_REACHED)
        return TaskView("approval", CURRENT if request else TO_COME, request)

    def _timed(self, stage: Stage) -> TaskView:
        words = f"wait {duration_words(stage.wait)}"
        timed = next((one for one in self.answer.waits if one.what is WaitFor.TIME), None)
        if timed and timed.stage == stage.name:
            return TaskView(words, CURRENT, until=timed.until)
        if stage.ended_at or (stage.updated_at and not self._is_stopped):
            return TaskView(words, DONE)
        return TaskView(words, NOT_REACHED if self.answer.run.outcome else TO_COME)

    @property
    def _is_stopped(self) -> bool:
        """Tell whether a timed wait begins anew later, or never."""
        return self.answer.status in (RunStatus.STOPPED, RunStatus.STOPPING) or bool(self.answer.run.outcome)


def _stage_state(answer: Answer, stage: Stage) -> str:
    run = answer.run
    if stage.was_skipped:
        return SKIPPED
    if stage.ended_at:
        return DONE
    if run.outcome:
        return NOT_REACHED
    if stage is not run.current:
        return TO_COME
    return NOT_STARTED if answer.status is RunStatus.INITIALISED else CURRENT


def _step(step: ClusterStep, stage: Stage, answer: Answer) -> StepView:
    if step.done_at:
        return StepView(step, DONE, "", step.started_at, step.done_at, "", "")
    if step.failed_at:
        return StepView(step, "failed", "", step.started_at, None, "", "")
    if step.is_running:
        return StepView(step, "running", "", step.started_at, None, "", "")
    state = NOT_REACHED if answer.run.outcome else TO_COME
    return StepView(step, state, "", None, None, "", _why_waits(step, stage, answer))


def _why_waits(step: ClusterStep, stage: Stage, answer: Answer) -> str:
    """Say why a cluster was not started yet."""
    run = answer.run
    if run.outcome:
        return "the run ended before its turn came"
    if stage is not run.current:
        return f"comes after stage {_before(run, stage)}"
    waits = {one.what: one for one in answer.waits}
    for what, words in _HOLDS.items():
        if what in waits:
            return words
    lost = waits.get(WaitFor.UNREACHABLE)
    if lost and step.name in lost.names:
        return "is out of reach; it goes on when it is back"
    slots = answer.slots
    if answer.status is RunStatus.STOPPING or slots is None:
        return "nothing new starts"
    return f"waits for its turn: {slots.limit} at once, {slots.running} running"


_HOLDS = {
    WaitFor.RUN: "the run is only prepared",
    WaitFor.RESUME: "the run is stopped",
    WaitFor.APPROVAL_BEFORE: "the stage waits for an approval",
}


def _before(run: Plan, stage: Stage) -> str:
    names = [one.name for one in (*run.stages, run.deletions)]
    position = names.index(stage.name)
    return names[position - 1]


def _with_bindings(run: StagedRun, stages: list[StageView]) -> list[StageView]:
    """Say of the clusters that are being worked on what they say themselves."""
    names = [row.step.name for stage in stages for row in stage.rows if row.step.is_running]
    rows = Binding.objects.filter(placement=run.placement_id, cluster_name__in=names)
    found = {one.cluster_name: one for one in rows}
    return [_told(stage, found) for stage in stages]


def _told(stage: StageView, bindings: Mapping[str, Binding]) -> StageView:
    return replace(stage, rows=tuple(_row_told(row, bindings.get(row.step.name)) for row in stage.rows))


def _row_told(row: StepView, binding: Binding | None) -> StepView:
    if binding is None or not row.step.is_running:
        return row
    return replace(row, phase=binding.phase, message=binding.message)
