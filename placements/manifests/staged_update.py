"""Staged updates: the strategy with its stages, the run, the request for approval.

See `rules/lifecycle.md#staged-update-documents`.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator

from fleetui.apimachinery.errors import ErrorDetail, FieldError
from fleetui.apimachinery.fields import (
    INT32_MAX,
    LONGEST_PART,
    DurationText,
    FilledText,
    FleetDocument,
    LabelKey,
    Name,
    NamespacedMeta,
    immutable_errors,
    list_of,
    one_of,
    parse_document,
    parse_duration,
    pattern,
    refusal,
    syntax_problem,
)
from fleetui.apimachinery.model import (
    IntOrPercent,
    ManifestModel,
    Raw,
    conflict,
    duplicate_problems,
    items_at,
    mapping_at,
    quote_value,
    required,
)
from placements.manifests.affinity import LabelSelector
from placements.manifests.strategy import WrittenAmount, amount

MOST_STAGES = 31
_STAGE_NAME = re.compile(r"[a-z0-9]+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_ONE = IntOrPercent(1)


class TaskType(StrEnum):
    """What a stage waits for besides its clusters."""

    TIMED_WAIT = "TimedWait"
    APPROVAL = "Approval"


class RunState(StrEnum):
    """The state that the author of a run requests; Stop pauses, Run resumes.

    See `rules/lifecycle.md#actions`.
    """

    INITIALIZE = "Initialize"
    RUN = "Run"
    STOP = "Stop"


def _concurrency(value: object) -> IntOrPercent:
    concurrency = amount(value)
    if concurrency.number < 1:
        raise refusal(
            "out-of-range",
            f"Invalid value: {concurrency}: must be at least 1 or 1%",
            "an integer from 1, or 1% to 100%",
        )
    return concurrency


_STAGE_NAME_PROBLEM = partial(
    syntax_problem,
    syntax=_STAGE_NAME,
    longest=LONGEST_PART,
    words="must be a stage name",
)
_INDEX_PROBLEM = partial(
    syntax_problem, syntax=_INDEX, longest=INT32_MAX, words="must be an index"
)
StageName: TypeAlias = Annotated[
    str,
    pattern(
        _STAGE_NAME_PROBLEM, f"at most {LONGEST_PART} lower-case letters and digits"
    ),
]
Concurrency: TypeAlias = Annotated[
    IntOrPercent, BeforeValidator(_concurrency, json_schema_input_type=WrittenAmount)
]


class StageTask(ManifestModel):
    """Something that has to happen before or after the clusters of a stage are updated."""

    type: Annotated[TaskType, one_of(TaskType)]
    wait_time: DurationText | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        if raw.get("type") == TaskType.TIMED_WAIT and "waitTime" not in raw:
            yield required(
                "waitTime", "type TimedWait needs it", "a duration such as 1h30m"
            )
        if raw.get("type") == TaskType.APPROVAL and "waitTime" in raw:
            yield conflict("waitTime", "not allowed for type Approval", "no value")


class StageSpec(ManifestModel):
    """One stage: which clusters, in which order, how many at a time, and what it waits for.

    Without a label selector it has no clusters; an empty selector takes every one.
    """

    name: StageName
    label_selector: LabelSelector | None = None
    sorting_label_key: LabelKey | None = None
    max_concurrency: Concurrency = _ONE
    before_stage_tasks: Annotated[tuple[StageTask, ...], list_of(high=1)] = ()
    after_stage_tasks: Annotated[tuple[StageTask, ...], list_of(high=2)] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Before a stage only an approval; after it each type once."""
        for index, task in enumerate(items_at(raw, "beforeStageTasks")[:1]):
            if mapping_at(task).get("type") == TaskType.TIMED_WAIT:
                yield ErrorDetail(
                    ("beforeStageTasks", index, "type"),
                    "misplaced",
                    "Forbidden: TimedWait is only allowed after a stage",
                    TaskType.APPROVAL,
                )
        types = [
            mapping_at(task).get("type")
            for task in items_at(raw, "afterStageTasks")[:2]
        ]
        if len(types) == 2 and types[0] == types[1] and types[0] is not None:
            yield ErrorDetail(
                ("afterStageTasks", 1, "type"),
                "duplicate",
                f"Duplicate value: {quote_value(types[1])}",
                "unique types",
            )

    @property
    def needs_approval_before(self) -> bool:
        return bool(self.before_stage_tasks)

    @property
    def needs_approval_after(self) -> bool:
        return any(task.type is TaskType.APPROVAL for task in self.after_stage_tasks)

    @property
    def wait(self) -> timedelta:
        times = [
            parse_duration(task.wait_time)
            for task in self.after_stage_tasks
            if task.wait_time
        ]
        return times[0] if times else timedelta(0)


class StagedStrategySpec(ManifestModel):
    stages: Annotated[tuple[StageSpec, ...], list_of(low=1, high=MOST_STAGES)]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Names of stages are unique (`rules/lifecycle.md#staged-update-documents`)."""
        stages = enumerate(items_at(raw, "stages")[:MOST_STAGES])
        return duplicate_problems(
            (
                (("stages", index, "name"), mapping_at(stage).get("name"))
                for index, stage in stages
            ),
            "unique names",
        )


class ClusterStagedUpdateStrategy(FleetDocument):
    spec: StagedStrategySpec


class NamespacedStagedUpdateStrategy(ClusterStagedUpdateStrategy):
    """The same for runs of its namespace."""

    metadata: NamespacedMeta


class StagedRunSpec(ManifestModel):
    """Which placement to bring to which resource snapshot, by which strategy.

    An empty index, which the API server of a hub fills in, is the latest snapshot.
    """

    placement_name: Name
    resource_snapshot_index: (
        Annotated[str, pattern(_INDEX_PROBLEM, "an integer from 0", filled_in=False)]
        | None
    ) = None
    staged_rollout_strategy_name: Name
    state: Annotated[RunState, one_of(RunState)] = RunState.INITIALIZE


class ClusterStagedUpdateRun(FleetDocument):
    spec: StagedRunSpec


class NamespacedStagedUpdateRun(ClusterStagedUpdateRun):
    """The same for a placement of its namespace, by a strategy of its namespace."""

    metadata: NamespacedMeta


class ApprovalCondition(ManifestModel):
    """One condition of a status, as far as it matters."""

    allow_unknown: ClassVar[bool] = True

    type: FilledText
    status: FilledText


class ApprovalStatus(ManifestModel):
    """The answer to a request."""

    allow_unknown: ClassVar[bool] = True

    conditions: Annotated[tuple[ApprovalCondition, ...], list_of()] = ()


class ApprovalSpec(ManifestModel):
    """The stage and run that wait."""

    parent_stage_rollout: Name
    target_stage: StageName


class ClusterApprovalRequest(FleetDocument):
    """A request to approve a stage; its status holds the answer."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset()

    spec: ApprovalSpec
    status: ApprovalStatus | None = None

    @property
    def is_approved(self) -> bool:
        conditions = self.status.conditions if self.status else ()
        return any(
            (condition.type, condition.status) == ("Approved", "True")
            for condition in conditions
        )


class NamespacedApprovalRequest(ClusterApprovalRequest):
    """The same of a run of its namespace."""

    metadata: NamespacedMeta


parse_staged_strategy = partial(
    parse_document,
    ClusterStagedUpdateStrategy,
    namespaced=NamespacedStagedUpdateStrategy,
)
parse_staged_run = partial(
    parse_document, ClusterStagedUpdateRun, namespaced=NamespacedStagedUpdateRun
)
parse_approval_request = partial(
    parse_document, ClusterApprovalRequest, namespaced=NamespacedApprovalRequest
)

_MOVES = {
    RunState.INITIALIZE: (RunState.INITIALIZE, RunState.RUN),
    RunState.RUN: (RunState.RUN, RunState.STOP),
    RunState.STOP: (RunState.STOP, RunState.RUN),
}


def run_change_errors(
    before: ClusterStagedUpdateRun, after: ClusterStagedUpdateRun
) -> list[FieldError]:
    """Return an error for every forbidden change of a run's manifest.

    See `rules/lifecycle.md#staged-update-documents`.
    """
    fields = ("placementName", "resourceSnapshotIndex", "stagedRolloutStrategyName")
    errors = list(
        immutable_errors(before, after, *(("spec", field) for field in fields))
    )
    return errors + state_errors(before.spec.state, after.spec.state)


def state_errors(before: RunState, after: RunState) -> list[FieldError]:
    allowed = _MOVES[before]
    if after in allowed:
        return []
    return [
        FieldError(
            "spec.state",
            "immutable",
            f"Forbidden: cannot change from {before} to {after}",
            " or ".join(allowed),
        )
    ]


def approval_change_errors(
    before: ClusterApprovalRequest, after: ClusterApprovalRequest
) -> list[FieldError]:
    """Return an error for every forbidden change of a request: its whole spec is immutable."""
    return list(
        immutable_errors(
            before, after, ("spec", "parentStageRollout"), ("spec", "targetStage")
        )
    )
