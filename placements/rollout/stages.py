"""A staged run as a value: the plan that it froze, and how far it has come (lifecycle A.13, B.5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

FIRST_BACKOFF = timedelta(seconds=5)
LONGEST_BACKOFF = timedelta(minutes=15)
STUCK_AFTER = timedelta(minutes=5)


class When(StrEnum):
    """On which side of a stage an approval stands."""

    BEFORE = "before"
    AFTER = "after"


class Outcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody has to let a stage go on."""

    stage: str
    when: When


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a run cannot start or go on: a stable code, the names concerned, and numbers where they matter."""

    code: str
    names: tuple[str, ...] = ()
    wanted: int | None = None
    found: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """What a run does on one cluster: bring it to a version, or, in the delete stage, take everything away.

    `before` is the version that ran there when the step was started.
    """

    name: str
    version: str = ""
    before: str = ""
    started_at: datetime | None = None
    tried_at: datetime | None = None
    failed_at: datetime | None = None
    failures: int = 0
    done_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether the step was started and is not done; a failed one that will be retried is running."""
        return self.started_at is not None and self.done_at is None

    @property
    def is_waiting(self) -> bool:
        """Tell whether the step was not started."""
        return self.started_at is None and self.done_at is None

    @property
    def retry_at(self) -> datetime | None:
        """Give when a failed step is tried again: after 5 s, 10 s, 20 s … 15 min."""
        if self.failed_at is None:
            return None
        pause = FIRST_BACKOFF * 2 ** min(self.failures - 1, 20)
        at: datetime = self.failed_at + min(pause, LONGEST_BACKOFF)
        return at

    @property
    def attempt(self) -> int:
        """Give the number of the try that is under way, counted from 1."""
        return self.failures + 1

    def started(self, now: datetime, before: str) -> "ClusterStep":
        """Give the step after its start."""
        return replace(self, started_at=now, tried_at=now, before=before)

    def tried_again(self, now: datetime) -> "ClusterStep":
        """Give the step after another try."""
        return replace(self, tried_at=now, failed_at=None)

    def failed(self, at: datetime) -> "ClusterStep":
        """Give the step after a try that went wrong."""
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
    asked_before_at: datetime | None = None
    approved_before_at: datetime | None = None
    asked_after_at: datetime | None = None
    approved_after_at: datetime | None = None
    updated_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """Give the names of the clusters, in their order."""
        return tuple(step.name for step in self.steps)

    @property
    def is_updated(self) -> bool:
        """Tell whether the work on every cluster is done."""
        return all(step.done_at for step in self.steps)

    def replacing(self, steps: Mapping[str, ClusterStep]) -> "Stage":
        """Give the stage with some of its steps as they are now."""
        return (
            replace(self, steps=tuple(steps.get(step.name, step) for step in self.steps)) if steps else self
        )

    @property
    def was_skipped(self) -> bool:
        """Tell whether the stage ended without having had a cluster."""
        return self.ended_at is not None and not self.steps


@dataclass(frozen=True, slots=True)
class StagedRun:
    """A run: its stages, the delete stage, and where it stands; what changes makes a new value."""

    stages: tuple[Stage, ...]
    deletions: Stage
    policy_snapshot: str = ""
    apply_strategy: str = ""
    is_stopped: bool = False
    stopped_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    why: tuple[Reason, ...] = ()
    may_still_hold: tuple[str, ...] = ()

    @property
    def position(self) -> int:
        """Give the number of the stage that has not ended, counted from 0; the delete stage is the last."""
        ended = (bool(stage.ended_at) for stage in self.stages)
        return next((number for number, over in enumerate(ended) if not over), len(self.stages))

    @property
    def current(self) -> Stage:
        """Give the stage that has not ended."""
        return (*self.stages, self.deletions)[self.position]

    @property
    def is_deleting(self) -> bool:
        """Tell whether only the delete stage is left."""
        return self.position == len(self.stages)

    @property
    def steps(self) -> tuple[ClusterStep, ...]:
        """Give the steps on all clusters, those of the delete stage last."""
        return tuple(step for stage in (*self.stages, self.deletions) for step in stage.steps)

    def with_current(self, stage: Stage) -> "StagedRun":
        """Give the run with the stage that has not ended as it is now."""
        position = self.position
        if position == len(self.stages):
            return replace(self, deletions=stage)
        return replace(self, stages=(*self.stages[:position], stage, *self.stages[position + 1 :]))

    def ended(self, outcome: Outcome, now: datetime, *why: Reason) -> "StagedRun":
        """Give the run after its end; what is in flight on the clusters is left as it is."""
        return replace(self, outcome=outcome, ended_at=now, why=why)

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form, to be stored."""
        plain: dict[str, Any] = _RUN.dump_python(self, mode="json")
        return plain


def run_from_plain(plain: object) -> StagedRun:
    """Give back a stored run."""
    return _RUN.validate_python(plain)


_RUN = TypeAdapter(StagedRun)
