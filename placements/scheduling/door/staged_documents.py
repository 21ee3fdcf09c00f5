"""Staged updates: the strategy with its stages, the run, the request for approval (lifecycle B.1.7)."""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator

from placements.scheduling.door.amounts import IntOrPercent
from placements.scheduling.door.durations import DurationText, parse_duration
from placements.scheduling.door.fields import FilledText, LabelKey, listed, one_of, spelled, word_of
from placements.scheduling.door.fleet_documents import FleetDocument, Name, immutable_faults, parse_document
from placements.scheduling.door.kinds import APPROVAL_KIND, STAGED_RUN_KIND, STAGED_STRATEGY_KIND
from placements.scheduling.door.names import NameProblem
from placements.scheduling.door.parsing import Parsed, Raw, failure, items_at, mapping_at, shown
from placements.scheduling.door.strategy import amount
from placements.scheduling.door.terms import LabelSelector
from placements.scheduling.faults import Fault, Problem

MOST_STAGES = 31
_LONGEST_STAGE_NAME = 63
_STAGE_NAME = re.compile(r"[a-z0-9]+")
_STAGE_NAME_WORDS = f"at most {_LONGEST_STAGE_NAME} lower-case letters and digits"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_ONE = IntOrPercent(1)


class TaskType(StrEnum):
    """What a stage waits for beside its clusters."""

    TIMED_WAIT = "TimedWait"
    APPROVAL = "Approval"


class RunState(StrEnum):
    """What the author of a run wants of it; Stop pauses, Run resumes (lifecycle A.12)."""

    INITIALIZE = "Initialize"
    RUN = "Run"
    STOP = "Stop"


def _stage_name_problem(text: str) -> NameProblem | None:
    if len(text) > _LONGEST_STAGE_NAME:
        return NameProblem("too-long", f"has {len(text)} characters; at most {_LONGEST_STAGE_NAME} fit")
    return None if _STAGE_NAME.fullmatch(text) else NameProblem("bad-format", "is not a stage name")


def _index_problem(text: str) -> NameProblem | None:
    return None if _INDEX.fullmatch(text) else NameProblem("bad-format", "is not an index")


def _concurrency(value: object) -> IntOrPercent:
    found = amount(value)
    if found.number < 1:
        message = f"{found} would let nothing start"
        raise failure([Problem((), "out-of-range", message, "a whole number from 1, or 1% to 100%")])
    return found


StageName: TypeAlias = Annotated[str, spelled(_stage_name_problem, _STAGE_NAME_WORDS)]
Concurrency: TypeAlias = Annotated[IntOrPercent, BeforeValidator(_concurrency)]


class StageTask(Parsed):
    """Something that has to happen before or after the clusters of a stage are updated."""

    noun: ClassVar[str] = "stage task"

    type: Annotated[TaskType, one_of(TaskType)]
    wait_time: DurationText | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A timed wait says how long, an approval does not."""
        if raw.get("type") == TaskType.TIMED_WAIT and "waitTime" not in raw:
            yield Problem(("waitTime",), "required", "TimedWait needs the time to wait", "such as 1h30m")
        if raw.get("type") == TaskType.APPROVAL and "waitTime" in raw:
            yield Problem(("waitTime",), "conflict", "Approval takes no time to wait", "nothing")


class StageSpec(Parsed):
    """One stage: which clusters, in which order, how many at a time, and what it waits for.

    Without a label selector it has no clusters; an empty selector takes every one.
    """

    noun: ClassVar[str] = "stage"

    name: StageName
    label_selector: LabelSelector | None = None
    sorting_label_key: LabelKey | None = None
    max_concurrency: Concurrency = _ONE
    before_stage_tasks: Annotated[tuple[StageTask, ...], listed(high=1)] = ()
    after_stage_tasks: Annotated[tuple[StageTask, ...], listed(high=2)] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Before a stage only an approval; after it each type once."""
        for index, task in enumerate(items_at(raw, "beforeStageTasks")[:1]):
            if mapping_at(task).get("type") == TaskType.TIMED_WAIT:
                keys = ("beforeStageTasks", index, "type")
                yield Problem(keys, "misplaced", "TimedWait goes after a stage", TaskType.APPROVAL)
        types = [mapping_at(task).get("type") for task in items_at(raw, "afterStageTasks")[:2]]
        if len(types) == 2 and types[0] == types[1] and types[0] is not None:
            keys = ("afterStageTasks", 1, "type")
            yield Problem(keys, "duplicate", f"{shown(types[1])} stands above already", "each type once")

    @property
    def needs_approval_before(self) -> bool:
        """Tell whether somebody has to approve before any cluster is updated."""
        return bool(self.before_stage_tasks)

    @property
    def needs_approval_after(self) -> bool:
        """Tell whether somebody has to approve before the next stage begins."""
        return any(task.type is TaskType.APPROVAL for task in self.after_stage_tasks)

    @property
    def wait(self) -> timedelta:
        """Give how long to wait once all clusters are updated."""
        times = [parse_duration(task.wait_time) for task in self.after_stage_tasks if task.wait_time]
        return times[0] if times else timedelta(0)


class StagedStrategySpec(Parsed):
    """The stages, in their order."""

    noun: ClassVar[str] = "staged update strategy"

    stages: Annotated[tuple[StageSpec, ...], listed(low=1, high=MOST_STAGES)]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """No two stages have the same name (lifecycle A.13)."""
        seen: set[str] = set()
        for index, stage in enumerate(items_at(raw, "stages")[:MOST_STAGES]):
            name = mapping_at(stage).get("name")
            if isinstance(name, str) and name in seen:
                message = f"{shown(name)} is the name of a stage above"
                yield Problem(("stages", index, "name"), "duplicate", message, "a name of its own")
            elif isinstance(name, str):
                seen.add(name)


class ClusterStagedUpdateStrategy(FleetDocument):
    """A whole strategy document."""

    noun: ClassVar[str] = STAGED_STRATEGY_KIND

    kind: Annotated[str, word_of(STAGED_STRATEGY_KIND)]
    spec: StagedStrategySpec


class StagedRunSpec(Parsed):
    """Which placement to bring to which resource snapshot, by which strategy."""

    noun: ClassVar[str] = "staged update run"

    placement_name: Name
    resource_snapshot_index: Annotated[str, spelled(_index_problem, "a whole number from 0")] | None = None
    staged_rollout_strategy_name: Name
    state: Annotated[RunState, one_of(RunState)] = RunState.INITIALIZE


class ClusterStagedUpdateRun(FleetDocument):
    """A whole run document."""

    noun: ClassVar[str] = STAGED_RUN_KIND

    kind: Annotated[str, word_of(STAGED_RUN_KIND)]
    spec: StagedRunSpec


class Condition(Parsed):
    """One condition of a status, as far as it matters."""

    takes_unknown: ClassVar[bool] = True

    type: FilledText
    status: FilledText


class ApprovalStatus(Parsed):
    """What was said to a request."""

    takes_unknown: ClassVar[bool] = True

    conditions: Annotated[tuple[Condition, ...], listed()] = ()


class ApprovalSpec(Parsed):
    """Which stage of which run waits."""

    noun: ClassVar[str] = "approval request"

    parent_stage_rollout: Name
    target_stage: StageName


class ClusterApprovalRequest(FleetDocument):
    """A request that somebody lets a stage go on; its status holds the answer."""

    noun: ClassVar[str] = APPROVAL_KIND
    left_aside: ClassVar[frozenset[str]] = frozenset()

    kind: Annotated[str, word_of(APPROVAL_KIND)]
    spec: ApprovalSpec
    status: ApprovalStatus | None = None

    @property
    def is_approved(self) -> bool:
        """Tell whether somebody has said yes."""
        said = self.status.conditions if self.status else ()
        return any((one.type, one.status) == ("Approved", "True") for one in said)


def parse_staged_strategy(document: object) -> ClusterStagedUpdateStrategy:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterStagedUpdateStrategy, document)


def parse_staged_run(document: object) -> ClusterStagedUpdateRun:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterStagedUpdateRun, document)


def parse_approval_request(document: object) -> ClusterApprovalRequest:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterApprovalRequest, document)


_MOVES = {
    RunState.INITIALIZE: (RunState.INITIALIZE, RunState.RUN),
    RunState.RUN: (RunState.RUN, RunState.STOP),
    RunState.STOP: (RunState.STOP, RunState.RUN),
}


def run_change_faults(before: ClusterStagedUpdateRun, after: ClusterStagedUpdateRun) -> list[Fault]:
    """List every forbidden change from one manifest of a run to the next (lifecycle B.1.7)."""
    fields = ("placementName", "resourceSnapshotIndex", "stagedRolloutStrategyName")
    found = list(immutable_faults(before, after, *(("spec", field) for field in fields)))
    allowed = _MOVES[before.spec.state]
    if after.spec.state not in allowed:
        message = f"cannot go from {before.spec.state} to {after.spec.state}"
        found.append(Fault("spec.state", "immutable", message, " or ".join(allowed)))
    return found


def approval_change_faults(before: ClusterApprovalRequest, after: ClusterApprovalRequest) -> list[Fault]:
    """List every forbidden change of a request: its whole spec stays."""
    return list(immutable_faults(before, after, ("spec", "parentStageRollout"), ("spec", "targetStage")))
