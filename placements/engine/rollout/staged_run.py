"""A staged update run as a value: plan, start and progress (`rules/lifecycle.md#staged-update-runs`)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from clusters.fleet import Cluster, Fleet
from placements.engine.rollout.actions import SyncResult
from placements.engine.rollout.budget import Concurrency
from placements.engine.rollout.state import ClusterState, retry_delay
from placements.engine.scheduling.selectors import match_labels
from placements.manifests.staged_update import RunState, StagedStrategySpec, StageSpec

DELETE_STAGE = "kubernetes-fleet.io/deleteStage"
STUCK_AFTER = timedelta(minutes=5)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class ApprovalPoint(StrEnum):
    """On which side of a stage an approval is required."""

    BEFORE = "before"
    AFTER = "after"


class StagedRunOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


class RunStatus(StrEnum):
    """The status of a run (`rules/lifecycle.md#staged-update-runs`)."""

    INITIALISED = "initialised"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    STUCK = "stuck"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval that a stage requires to continue."""

    stage: str
    when: ApprovalPoint


@dataclass(frozen=True, slots=True)
class StageReason:
    """Why a run cannot start or continue: a stable code, the names concerned, and numbers where relevant."""

    code: str
    names: tuple[str, ...] = ()
    wanted: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """What a run does on one cluster: bring it to a version, or, in the delete stage, remove everything.

    `before` is the version that ran there when the step was started. `sequence` grows from one start of a
    cluster to the next over all active runs of a placement: the clocks of two workers may differ.
    """

    name: str
    version: str = ""
    before: str = ""
    sequence: int = 0
    started_at: datetime | None = None
    failed_at: datetime | None = None
    failures: int = 0
    done_at: datetime | None = None

    @property
    def is_running(
        self,
    ) -> bool:  # started and not done; also a failed one that will be retried
        return self.started_at is not None and self.done_at is None

    @property
    def is_waiting(self) -> bool:
        return self.started_at is None and self.done_at is None

    @property
    def retry_at(self) -> datetime | None:
        """Return when a failed step is tried again: after 5 s, 10 s, 20 s … 15 min."""
        return (
            None
            if self.failed_at is None
            else self.failed_at + retry_delay(self.failures)
        )

    @property
    def attempt(self) -> int:
        """Return the number of the current attempt, counted from 1."""
        return self.failures + 1

    def start(self, now: datetime, before: str, sequence: int) -> "ClusterStep":
        return replace(self, started_at=now, before=before, sequence=sequence)

    def fail(self, at: datetime) -> "ClusterStep":
        return replace(self, failed_at=at, failures=self.failures + 1)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a run with its clusters in the order in which they are updated."""

    name: str
    steps: tuple[ClusterStep, ...]
    limit: int = 1
    needs_approval_before: bool = False
    needs_approval_after: bool = False
    wait: timedelta = timedelta(0)
    requested_before_at: datetime | None = None
    approved_before_at: datetime | None = None
    requested_after_at: datetime | None = None
    approved_after_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def cluster_names(self) -> tuple[str, ...]:
        return tuple(step.name for step in self.steps)

    @property
    def is_updated(self) -> bool:
        return all(step.done_at for step in self.steps)

    @property
    def may_start(self) -> bool:  # no approval is missing before the stage
        return not self.needs_approval_before or self.approved_before_at is not None

    @property
    def may_end(self) -> bool:  # no approval is missing after the stage
        return not self.needs_approval_after or self.approved_after_at is not None

    @property
    def was_skipped(self) -> bool:  # ended without having had a cluster
        return self.ended_at is not None and not self.steps

    def with_steps(self, steps: Mapping[str, ClusterStep]) -> "Stage":
        return replace(
            self, steps=tuple(steps.get(step.name, step) for step in self.steps)
        )


@dataclass(frozen=True, slots=True)
class StagedRunPlan:
    """A run: its stages, the delete stage, and its progress; every change makes a new value."""

    stages: tuple[Stage, ...]
    deletions: Stage
    policy_snapshot: str = ""
    apply_strategy: str = ""
    is_stopped: bool = False
    stopped_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: StagedRunOutcome | None = None
    reasons: tuple[StageReason, ...] = ()
    may_still_hold: tuple[str, ...] = ()

    @property
    def position(self) -> int:
        """Return the number of the stage that has not ended, counted from 0; the delete stage is the last."""
        ended = (bool(stage.ended_at) for stage in self.stages)
        return next(
            (number for number, over in enumerate(ended) if not over), len(self.stages)
        )

    @property
    def current(self) -> Stage:
        return (*self.stages, self.deletions)[self.position]

    @property
    def is_deleting(self) -> bool:  # only the delete stage is left
        return self.position == len(self.stages)

    @property
    def steps(self) -> tuple[ClusterStep, ...]:
        """Return the steps on all clusters, those of the delete stage last."""
        return tuple(
            step for stage in (*self.stages, self.deletions) for step in stage.steps
        )

    def with_current(self, stage: Stage) -> "StagedRunPlan":
        position = self.position
        if position == len(self.stages):
            return replace(self, deletions=stage)
        return replace(
            self, stages=(*self.stages[:position], stage, *self.stages[position + 1 :])
        )

    def end(
        self, outcome: StagedRunOutcome, now: datetime, *reasons: StageReason
    ) -> "StagedRunPlan":
        """Return the run after its end; what is in flight on the clusters is left as it is."""
        return replace(self, outcome=outcome, ended_at=now, reasons=reasons)

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = _RUN.dump_python(self, mode="json")
        return plain


def run_from_plain(plain: object) -> StagedRunPlan:
    return _RUN.validate_python(plain)


_RUN = TypeAdapter(StagedRunPlan)


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """What a run has to know of its placement when it starts."""

    picked: tuple[Cluster, ...]
    versions: Mapping[str, str]
    unscheduled: tuple[str, ...] = ()
    expected: int | None = None
    is_staged: bool = True
    is_being_deleted: bool = False
    is_decided: bool = True
    policy_snapshot: str = ""
    apply_strategy: str = ""


@dataclass(frozen=True, slots=True)
class CannotStart:
    """Why a run cannot start; one that is not final may be tried again when the scheduler has decided."""

    reasons: tuple[StageReason, ...]
    is_final: bool = True


def initialise(
    strategy: StagedStrategySpec, placement: PlacementFacts
) -> StagedRunPlan | CannotStart:
    """Fix stages, order, versions and deletions, or return everything that forbids it.

    See `rules/lifecycle.md#staged-update-runs`.

    Departing from the released system, a placement that is not decided yet may be tried again, and a cluster
    without a whole number as its sorting label comes after the others
    (`rules/lifecycle.md#staged-update-runs`).
    """
    if (
        placement.is_staged
        and not placement.is_being_deleted
        and not placement.is_decided
    ):
        return CannotStart((StageReason("not-decided"),), is_final=False)
    fleet = Fleet(placement.picked)
    members = [stage_members(stage, fleet) for stage in strategy.stages]
    reasons = tuple(
        _why_not(placement, Counter(name for names in members for name in names))
    )
    if reasons:
        return CannotStart(reasons)
    stages = tuple(
        Stage(
            spec.name,
            tuple(ClusterStep(name, placement.versions[name]) for name in names),
            spec.max_concurrency.at_least_one_of(len(names)),
            spec.needs_approval_before,
            spec.needs_approval_after,
            spec.wait,
        )
        for spec, names in zip(strategy.stages, members, strict=True)
    )
    deletions = Stage(
        DELETE_STAGE, tuple(map(ClusterStep, sorted(placement.unscheduled)))
    )
    return StagedRunPlan(
        stages, deletions, placement.policy_snapshot, placement.apply_strategy
    )


def stage_members(stage: StageSpec, fleet: Fleet) -> tuple[str, ...]:
    """Return the clusters of a stage by the whole number in the sorting label, then by name."""
    if stage.label_selector is None:
        return ()
    mask = match_labels(stage.label_selector, fleet).tolist()
    matching = [
        cluster for cluster, matches in zip(fleet, mask, strict=True) if matches
    ]

    def order(
        cluster: Cluster,
    ) -> tuple[bool, int, str]:  # clusters without a number come last
        number = sorting_number(cluster, stage.sorting_label_key)
        return (number is None, number or 0, cluster.name)

    return tuple(cluster.name for cluster in sorted(matching, key=order))


def sorting_number(cluster: Cluster, key: str | None) -> int | None:
    """Return the whole number in the sorting label of a cluster; None without one."""
    text = cluster.labels.get(key, "") if key else ""
    return int(text) if _INTEGER.fullmatch(text) else None


def _why_not(placement: PlacementFacts, counts: Counter[str]) -> Iterator[StageReason]:
    """Yield what forbids the start; `counts` are the stages of each cluster, which must be exactly one."""
    if placement.is_being_deleted:
        yield StageReason("being-deleted")
    if not placement.is_staged:
        yield StageReason("not-staged")
    if not placement.picked and not placement.unscheduled:
        yield StageReason("nothing-to-do")
    if placement.expected is not None and placement.expected != len(placement.picked):
        yield StageReason(
            "other-number", wanted=placement.expected, found=len(placement.picked)
        )
    names = sorted(cluster.name for cluster in placement.picked)
    missing = tuple(name for name in names if not counts[name])
    several = tuple(name for name in names if counts[name] > 1)
    if missing:
        yield StageReason("in-no-stage", missing)
    if several:
        yield StageReason("in-several-stages", several)


def why_invalid(
    run: StagedRunPlan, current: StagedRunPlan | CannotStart
) -> tuple[StageReason, ...]:
    """Return why a run cannot continue; `current` is what `initialise` returns now for its strategy.

    See `rules/lifecycle.md#staged-update-runs`.

    A placement that is being decided again is no reason: the run continues with what it has.
    """
    if isinstance(current, CannotStart):
        excused = (
            {"nothing-to-do"} if not any(stage.steps for stage in run.stages) else set()
        )
        return tuple(
            reason
            for reason in current.reasons
            if current.is_final and reason.code not in excused
        )
    if run.policy_snapshot != current.policy_snapshot:
        return (StageReason("new-policy"),)
    if run.apply_strategy != current.apply_strategy:
        return (StageReason("new-apply-strategy"),)
    was, became = (
        [(stage.name, stage.cluster_names) for stage in plan.stages]
        for plan in (run, current)
    )
    if was != became:
        moved = {
            before[0]
            for before, after in zip(was, became, strict=False)
            if before != after
        }
        return (StageReason("other-stages", tuple(sorted(moved))),)
    added = set(current.deletions.cluster_names) - set(run.deletions.cluster_names)
    return (StageReason("new-deletions", tuple(sorted(added))),) if added else ()


NOT_IN_FLEET = ClusterState("", None, is_in_fleet=False)
"""The state of a cluster that has left the fleet."""


@dataclass(frozen=True, slots=True)
class StagedRunState:
    """Everything that decides about a staged run, as it is `at` a moment.

    `spec_state` is what its author wants. A cluster that is missing from `clusters` has left the fleet.
    `approvals`, `skipped_waits` and `retries` are actions of users: when a request was approved, since when
    the skipped wait of a stage counts, after how many failures a cluster is to be retried. They are matched
    by these, as the clocks of other processes may differ from that of the worker. `revalidated` is what
    `initialise` returns now for the strategy that the run froze; without it nothing is validated. `others`
    are the other runs of the placement that have not ended.
    """

    run: StagedRunPlan
    spec_state: RunState
    clusters: Mapping[str, ClusterState]
    at: datetime
    approvals: Mapping[Approval, datetime] = field(default_factory=dict)
    skipped_waits: Mapping[str, datetime] = field(default_factory=dict)
    retries: Mapping[str, int] = field(default_factory=dict)
    revalidated: StagedRunPlan | CannotStart | None = None
    others: tuple[StagedRunPlan, ...] = ()

    def cluster(self, name: str) -> ClusterState:
        return self.clusters.get(name, NOT_IN_FLEET)


class WaitReason(StrEnum):
    """What a staged run waits for; that of a paused placement is not synced and keeps its reasons."""

    RUN = "run"
    RESUME = "resume"
    APPROVAL_BEFORE = "approval-before"
    APPROVAL_AFTER = "approval-after"
    TIME = "time"
    CLUSTERS = "clusters"
    REMOVALS = "removals"
    RETRY = "retry"
    UNREACHABLE = "unreachable"
    NOT_MONITORED = "not-monitored"


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a run waits for: in which stage, for which clusters, until when if that is known."""

    reason: WaitReason
    stage: str = ""
    names: tuple[str, ...] = ()
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConcurrency(Concurrency):
    """The concurrency of one stage; `done` of its `clusters` are updated, `waiting` were not started yet."""

    stage: str
    clusters: int
    done: int

    @property
    def waiting(self) -> int:
        return self.clusters - self.running - self.done


@dataclass(frozen=True, slots=True)
class StagedUpdateResult(SyncResult):
    """What a staged run does now, and what it waits for; store `run` before the actions.

    `approvals` are those to be requested now; `stuck` are clusters that have run for five minutes.
    """

    run: StagedRunPlan
    status: RunStatus
    approvals: tuple[Approval, ...] = ()
    waits: tuple[Wait, ...] = ()
    concurrency: StageConcurrency | None = None
    stuck: tuple[str, ...] = ()


def names_waiting_for(waits: Iterable[Wait], reason: WaitReason) -> list[str]:
    return [name for wait in waits if wait.reason is reason for name in wait.names]
