"""Queries for staged runs: manifest, progress, stages, the preview of a new run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from clusters.queries import current_fleet
from fleetui.apimachinery.kinds import STAGED_STRATEGY_KIND, kind_in
from fleetui.apimachinery.model import omit_empty
from placements.engine.rollout.staged_run import (
    ApprovalPoint,
    CannotStart,
    ClusterStep,
    RunStatus,
    Stage,
    StagedUpdateResult,
    StageReason,
    WaitReason,
    initialise,
    names_waiting_for,
)
from placements.engine.rollout.state import EMPTY
from placements.explain.staged_updates import (
    StageWords,
    duration_words,
    reason_sentence,
    stage_state,
    stage_words,
)
from placements.manifests.binding import BindingState
from placements.manifests.staged_update import TaskType, parse_staged_strategy
from placements.models import (
    ApprovalRequest,
    Binding,
    Placement,
    ResourceSnapshot,
    StagedRun,
    StagedStrategy,
)
from placements.services.overrides.queries import applying_to
from placements.services.resources.queries import selection_for
from placements.services.rollout_state import (
    NO_VERSIONS,
    Versions,
    load_rollout_context,
    placement_facts,
    strategy_of,
)
from placements.services.teams import labels_in

ROWS, MORE_ROWS = 20, 50
DONE, CURRENT, PENDING, NOT_REACHED, NOT_STARTED = (
    "done",
    "current",
    "to come",
    "not reached",
    "not started",
)


_STAGE_KEYS = ("env", "environment", "region")
_EARLY = {"canary": 0, "dev": 1, "test": 2, "staging": 3}
_MOST_STARTING, _LONGEST_START = 6, 50


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows of a stage to show: from where on."""

    stage: str
    first: int


@dataclass(frozen=True, slots=True)
class TaskView:
    """A gate of a stage; `until` is when a timed wait ends, `request` the request for an approval."""

    words: str
    state: str
    request: ApprovalRequest | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class StepView:
    """One cluster of a stage: its progress, how long that took or takes, why it waits."""

    step: ClusterStep
    phase: str
    since: datetime | None
    until: datetime | None
    message: str
    why: str

    @property
    def has_failed(self) -> bool:
        return self.step.failed_at is not None and self.step.done_at is None


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage of a run, with some of its clusters; without words it is the delete stage."""

    number: int
    stage: Stage
    words: StageWords | None
    state: str
    before: TaskView | None
    after: tuple[TaskView, ...]
    rows: tuple[StepView, ...]
    first: int

    @property
    def total(self) -> int:
        return len(self.stage.steps)

    @property
    def failed(self) -> int:
        return sum(step.failed_at is not None for step in self.stage.steps)

    @property
    def running(self) -> int:
        return sum(
            step.is_running and step.failed_at is None for step in self.stage.steps
        )

    @property
    def last(self) -> int:
        return self.first + len(self.rows)

    @property
    def earlier(self) -> int | None:
        return max(0, self.first - MORE_ROWS) if self.first else None

    @property
    def later(self) -> int | None:
        return self.last if self.last < self.total else None


def stages_of(
    run: StagedRun, result: StagedUpdateResult, window: Window | None
) -> list[StageView]:
    """Return every stage; the delete stage is the last, and is left out where it is empty."""
    specs = {spec.name: spec for spec in strategy_of(run).stages}
    requests = {
        (approval.stage, approval.side): approval for approval in run.approvals.all()
    }
    plan = result.run
    # Clusters that are being worked on show the phase and message of their bindings.
    running = [step.name for step in plan.steps if step.is_running]
    rows = Binding.objects.filter(placement=run.placement_id, cluster_name__in=running)
    builder = _StageBuilder(
        result, requests, window, {row.cluster_name: row for row in rows}
    )
    stages = [
        builder.build(
            number, stage, stage_words(specs[stage.name], clusters=len(stage.steps))
        )
        for number, stage in enumerate(plan.stages, 1)
    ]
    if plan.deletions.steps:
        stages.append(builder.build(len(stages) + 1, plan.deletions, None))
    return stages


@dataclass(frozen=True, slots=True)
class _StageBuilder:
    """What the views of all stages of one run share."""

    result: StagedUpdateResult
    requests: Mapping[tuple[str, str], ApprovalRequest]
    window: Window | None
    bindings: Mapping[str, Binding]

    def build(
        self,
        number: int,
        stage: Stage,
        words: StageWords | None,
    ) -> StageView:
        before, after = None, []
        if stage.needs_approval_before and stage.steps:
            before = self.approval(stage, ApprovalPoint.BEFORE)
        if stage.wait and stage.steps:
            after.append(self.timed_wait(stage))
        if stage.needs_approval_after and stage.steps:
            after.append(self.approval(stage, ApprovalPoint.AFTER))
        # The rows of the window; otherwise those from the first cluster on that is not done.
        if self.window and self.window.stage == stage.name:
            first, most = (
                self.window.first if self.window.first < len(stage.steps) else 0,
                MORE_ROWS,
            )
        else:
            first, most = (
                next(
                    (at for at, step in enumerate(stage.steps) if not step.done_at), 0
                ),
                ROWS,
            )
            first = max(0, min(first, len(stage.steps) - ROWS))
        rows = tuple(
            self.step(step, stage) for step in stage.steps[first : first + most]
        )
        state = stage_state(self.result.run, stage)
        if state == CURRENT and self.result.status is RunStatus.INITIALISED:
            state = NOT_STARTED
        elif (
            state == CURRENT
            and stage.updated_at
            and all(task.state == DONE for task in after)
        ):
            state = DONE  # approved; no worker has processed it yet
        return StageView(number, stage, words, state, before, tuple(after), rows, first)

    def approval(self, stage: Stage, point: ApprovalPoint) -> TaskView:
        request = self.requests.get((stage.name, str(point)))
        if request is not None and request.approved_at:
            return TaskView("approval", DONE, request)
        if self.result.run.outcome:
            return TaskView("approval", "not given" if request else NOT_REACHED)
        return TaskView("approval", CURRENT if request else PENDING, request)

    def timed_wait(self, stage: Stage) -> TaskView:
        words = f"Wait ({duration_words(stage.wait)})"
        timed = next(
            (wait for wait in self.result.waits if wait.reason is WaitReason.TIME), None
        )
        if timed and timed.stage == stage.name:
            return TaskView(words, CURRENT, until=timed.until)
        # A timed wait of a stopped run restarts later, or never.
        is_stopped = (
            self.result.run.is_stopped or self.result.status is RunStatus.STOPPING
        )
        if stage.ended_at or (
            stage.updated_at and not is_stopped and not self.result.run.outcome
        ):
            return TaskView(words, DONE)
        if self.result.run.outcome:
            return TaskView(words, "aborted" if stage.updated_at else NOT_REACHED)
        return TaskView(words, PENDING)

    def step(self, step: ClusterStep, stage: Stage) -> StepView:
        if step.done_at:
            return StepView(step, "", step.started_at, step.done_at, "", "")
        if not step.is_running:
            return StepView(step, "", None, None, "", self.why_waits(step, stage))
        binding = self.bindings.get(step.name)
        phase, message = (binding.phase, binding.message) if binding else ("", "")
        return StepView(step, phase, step.started_at, None, message, "")

    def why_waits(self, step: ClusterStep, stage: Stage) -> str:
        run, concurrency = self.result.run, self.result.concurrency
        if run.outcome:
            return "The run ended before this cluster was updated."
        if stage is not run.current:
            names = [one.name for one in (*run.stages, run.deletions)]
            return f"After stage {names[names.index(stage.name) - 1]}."
        for wait in self.result.waits:
            if wait.reason in _WAITING:
                return _WAITING[wait.reason]
        if step.name in names_waiting_for(self.result.waits, WaitReason.UNREACHABLE):
            return "Unreachable. Continues on reconnect."
        if step.name in names_waiting_for(self.result.waits, WaitReason.NOT_MONITORED):
            return "Not monitored. Continues once a driver is set."
        if self.result.status is RunStatus.STOPPING or concurrency is None:
            return "No new updates start."
        return f"Waiting: {concurrency.running} updating (max {concurrency.limit} at a time)."


_WAITING = {
    WaitReason.RUN: "The run is not started.",
    WaitReason.RESUME: "The run is paused.",
    WaitReason.APPROVAL_BEFORE: "The stage waits for approval.",
}


@dataclass(frozen=True, slots=True)
class StagePreview:
    """One stage in words, with its clusters in the order of the updates."""

    words: StageWords
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunPreview:
    """The stages of a run that has not started; `problems` are why it could not start, or not yet.

    `have_it` are clusters that run the chosen snapshot with its overrides already: nothing would be started
    on them. `chosen` is None for the latest one, when the run starts.
    """

    stages: tuple[StagePreview, ...]
    deletions: tuple[str, ...]
    problems: tuple[str, ...]
    is_final: bool
    have_it: frozenset[str]
    chosen: ResourceSnapshot | None

    @property
    def is_rollback(self) -> bool:
        return self.chosen is not None and not self.chosen.is_latest


def starting_strategy(placement: Placement) -> dict[str, Any]:
    """Return a manifest to start from: a stage for each environment or region, and an approval.

    Canaries come first. A single stage, where no label divides the clusters, is approved before it starts.
    """
    placed = placement.bindings.exclude(state=BindingState.UNSCHEDULED)
    names = set(placed.values_list("cluster_name", flat=True))
    clusters = [cluster for cluster in current_fleet().fleet if cluster.name in names]
    approval = [{"type": str(TaskType.APPROVAL)}]
    stages: list[dict[str, Any]] = []
    for key in _STAGE_KEYS:
        values = {cluster.labels.get(key, "") for cluster in clusters}
        own = {_stage_name(value) for value in values} - {""}
        if 1 < len(own) == len(values) <= _MOST_STARTING:
            ordered = sorted(values, key=lambda value: (_EARLY.get(value, 9), value))
            stages = [
                {
                    "name": _stage_name(value),
                    "labelSelector": {"matchLabels": {key: value}},
                }
                for value in ordered
            ]
            stages[0]["afterStageTasks"] = approval
            for stage in stages[1:]:  # the first one changes one cluster at a time
                stage["maxConcurrency"] = "25%"
            break
    else:
        stages = [{"name": "all", "labelSelector": {}, "beforeStageTasks": approval}]
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": kind_in(placement.namespace, STAGED_STRATEGY_KIND),
        "metadata": omit_empty(
            name=f"{placement.name[:_LONGEST_START].rstrip('.')}-stages",
            namespace=placement.namespace,
            labels=dict(labels_in(placement.document)),
        ),
        "spec": {"stages": stages},
    }


def _stage_name(label: str) -> str:
    return re.sub("[^a-z0-9]", "", label.lower())


def preview_of(
    placement: Placement,
    strategy: StagedStrategy,
    snapshot: int | None,
    *,
    becomes_external: bool = False,
    now: datetime,
) -> RunPreview:
    """Return what a run with this strategy would do; nothing is written."""
    spec = parse_staged_strategy(strategy.document).spec
    context = load_rollout_context(placement, now=now, plans=True)
    facts = placement_facts(context, {})
    if becomes_external:
        facts = replace(facts, is_staged=True)
    plan = initialise(spec, facts)
    chosen: ResourceSnapshot | None = None
    is_older = placement.has_newer_resources or placement.pinned_snapshot is not None
    versions = NO_VERSIONS if is_older else context.versions
    if snapshot is not None:
        chosen = placement.resource_snapshots.filter(number=snapshot).first()
        overrides = applying_to(placement.full_name, chosen)
        versions = Versions.of(chosen, context.manifest, overrides)
    if isinstance(plan, CannotStart):
        problems = tuple(map(reason_sentence, plan.reasons))
        return RunPreview((), (), problems, plan.is_final, frozenset(), chosen)
    stages = tuple(
        StagePreview(stage_words(words, clusters=len(stage.steps)), stage.cluster_names)
        for words, stage in zip(spec.stages, plan.stages, strict=True)
    )
    problems = ()
    is_empty = all(binding.phase in EMPTY for binding in context.bindings)
    # A run selects its resources when it starts: they may be created first.
    if snapshot is None and is_empty and not selection_for(placement).objects:
        problems = (reason_sentence(StageReason("no-resources")),)
    return RunPreview(
        stages,
        plan.deletions.cluster_names,
        problems,
        not problems,
        context.with_versions(versions),
        chosen,
    )
