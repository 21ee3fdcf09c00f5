"""Status badges: of clusters, placements, rollouts and outcomes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from clusters.filters import ClusterListState
from clusters.models import MemberCluster
from placements.engine.rollout.actions import BlockReason, RunPhase
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.rollout.state import FailureKind, Phase
from placements.engine.scheduling.outcome import BLOCKED, Outcome
from placements.engine.status import (
    GATES,
    WAITS_FOR_APPROVAL,
    HealthCounts,
    HealthLevel,
    PlacementHealth,
)
from placements.explain.clusters import cluster_status
from placements.explain.rollouts import DELETED, RELEASED, REMOVED, UP_TO_DATE
from placements.explain.vocabulary import NONE
from placements.manifests.policy import PlacementType
from placements.models import ClusterUpdate, Placement, Rollout, RunKind, StagedRun
from placements.models.rollouts import INITIALISING, Run

_OUTCOMES: dict[str, str] = {
    Outcome.PICKED: "selected",
    Outcome.KEPT: "kept",
    Outcome.UNSCHEDULED: "unscheduled",
    Outcome.NOT_ELIGIBLE: "not-ready",
    Outcome.FILTERED: "filtered",
    BLOCKED: "filtered",
}


@dataclass(frozen=True, slots=True)
class Badge:
    """An icon, distinct in shape, and the status word beside it."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: its level, its words, and where it starts and how wide it is, in percent."""

    level: str
    words: str
    at: str
    width: str


def segments(parts: Iterable[tuple[str, str, int]]) -> list[Segment]:
    """Return the segments of a bar from levels, words and counts, without those of count 0."""
    present = [part for part in parts if part[2]]
    total, before, bar = sum(count for *_, count in present), 0, []
    for level, words, count in present:
        at, width = (f"{100 * one / total:.2f}" for one in (before, count))
        bar.append(Segment(level, words, at, width))
        before += count
    return bar


def status_bar(
    placement: Placement, health: PlacementHealth, run: Run | None
) -> list[Segment]:
    """Return the bar of the wanted clusters by their state; what is missing is empty.

    `run` is the newest of the placement; only a staged one can wait for a user.
    """
    counts = health.counts
    is_rolling = run is not None and run.is_running and run.gate not in GATES
    is_paused = run is not None and run_state(run) == _PAUSED
    available = HealthLevel.SUSPENDED if is_paused else HealthLevel.HEALTHY
    is_suspended = (
        health.level is HealthLevel.SUSPENDED
        or health.condition == "No resources selected"
        or (placement.is_staged and not is_rolling)
        or placement.paused_since is not None
    )
    rest = HealthLevel.SUSPENDED if is_suspended else HealthLevel.PROGRESS
    seen = (
        (available, counts.available),
        (HealthLevel.FAILED, counts.failed),
        (HealthLevel.ATTENTION, counts.not_available + counts.unreachable),
        (HealthLevel.UNKNOWN, counts.not_observed + counts.not_monitored),
    )
    parts = (
        *seen,
        (rest, max(0, counts.scheduled - sum(number for _, number in seen))),
        ("pending", max(0, counts.wanted - counts.scheduled)),
    )
    return segments((level, "", number) for level, number in parts)


_PAUSED = Badge("suspended", "Paused")
STATE_BADGES = {
    ClusterListState.READY: Badge("healthy", "Ready"),
    ClusterListState.NOT_MONITORED: Badge("unknown", "Not monitored"),
    ClusterListState.JOINING: Badge("progress", "Joining"),
    ClusterListState.CORDONED: Badge("suspended", "Cordoned"),
    ClusterListState.WORKLOADS_FAILING: Badge("attention", "Workloads failing"),
    ClusterListState.UNHEALTHY: Badge("attention", "Unhealthy"),
    ClusterListState.HEARTBEAT_LATE: Badge("attention", "Heartbeat late"),
    ClusterListState.NOT_OBSERVED: Badge("unknown", "Not observed"),
    ClusterListState.NOT_ELIGIBLE: Badge("failed", "Not ready"),
    ClusterListState.LEAVING: Badge("progress", "Leaving"),
}


def cluster_badge(cluster: MemberCluster, *, is_cordoned: bool) -> Badge:
    return Badge(*cluster_status(cluster, is_cordoned=is_cordoned))


APPROVAL = "approval"
"""The kind of what waits for an approval: it works as specified, and a person is to act."""


def placement_state(health: PlacementHealth) -> Badge:
    kind = APPROVAL if health.word == WAITS_FOR_APPROVAL else health.level
    return Badge(kind, health.summary)


_PHASES: dict[str, Badge] = {
    Phase.NOT_STARTED: Badge("pending", "Pending"),
    Phase.APPLYING: Badge("progress", "Applying"),
    Phase.APPLIED: Badge("progress", "Waiting for availability"),
    Phase.AVAILABLE: Badge("healthy", "Available"),
    Phase.FAILED: Badge("failed", "Failed"),
    Phase.REMOVING: Badge("progress", "Removing"),
    Phase.REMOVE_FAILED: Badge("failed", "Removal failed"),
    Phase.REMOVED: Badge("pending", "Removed"),
    ClusterUpdate.Outcome.SUPERSEDED.value: Badge("pending", "Superseded"),
}


_BLOCKS: dict[str, Badge] = {
    BlockReason.UNREACHABLE: Badge("attention", "Unreachable"),
    BlockReason.NOT_AVAILABLE: Badge("attention", "Not available"),
}


def phase_state(phase: str, block: str = "", *, failure: str = "") -> Badge:
    """Return the status of a cluster in a rollout; `block` is what blocks it there."""
    if phase in (Phase.APPLIED, Phase.AVAILABLE) and failure == FailureKind.DIFFERS:
        return Badge("attention", "Differs")
    return _BLOCKS.get(block) or _PHASES.get(
        phase, Badge("pending", phase.replace("-", " ").capitalize())
    )


def run_state(run: Any) -> Badge:
    if run.is_running and run.placement and run.placement.paused_since:
        return _PAUSED
    status = run.status if run.kind == RunKind.STAGED else _rolling_status(run)
    gate = GATES.get(run.gate or "") if status == RunStatus.WAITING else None
    if gate:
        level, words, _ = gate
        return Badge(APPROVAL if words == WAITS_FOR_APPROVAL else level, words)
    is_at_work = status in (RunStatus.PROGRESSING, RunStatus.STUCK)
    return _at_work(_RUNS[status], run.failed if is_at_work else 0)


def _rolling_status(run: Rollout) -> str:
    """Return the status of a rolling update in the values of a staged run, or how it ended."""
    if run.state == Rollout.State.FINISHED:
        is_complete = run.ended_reason in ("", UP_TO_DATE, REMOVED, RELEASED, DELETED)
        return RunStatus.SUCCEEDED if is_complete else _INCOMPLETE
    if not run.is_running:
        return _CANCELED if run.ended_reason == DELETED else run.state
    is_news = run.placement is not None and run.placement.needs_sync
    is_stalled = run.verdict == RunPhase.HALTED and not is_news
    return RunStatus.STUCK if is_stalled else RunStatus.PROGRESSING


def _at_work(badge: Badge, failed: int) -> Badge:
    """Return the status of a rollout that is not paused and has not ended."""
    words = (
        f"{badge.words} {NONE} {failed:,} failed"
        if badge.kind == "progress"
        else badge.words
    )
    return Badge("failed", words) if failed else badge


_INCOMPLETE, _CANCELED = "incomplete", "canceled"
_RUNS: dict[str, Badge] = {
    INITIALISING: Badge("progress", "Initializing"),
    RunStatus.INITIALISED: Badge("suspended", "Initialized"),
    RunStatus.PROGRESSING: Badge("progress", "Progressing"),
    RunStatus.WAITING: Badge("attention", "Waiting"),
    RunStatus.STUCK: Badge("attention", "Stalled"),
    RunStatus.STOPPING: Badge("progress", "Pausing"),
    RunStatus.STOPPED: _PAUSED,
    RunStatus.SUCCEEDED: Badge("healthy", "Completed"),
    RunStatus.FAILED: Badge("failed", "Failed"),
    RunStatus.ABANDONED: Badge("pending", "Aborted"),
    Rollout.State.SUPERSEDED.value: Badge("pending", "Superseded"),
    _INCOMPLETE: Badge("attention", "Completed with issues"),
    _CANCELED: Badge("suspended", "Canceled"),
}


def without_status(sentences: Iterable[str], state: Badge) -> list[str]:
    """Return sentences for the place beside a status, without its words at their start."""
    return [sentence.removeprefix(f"{state.words} ") for sentence in sentences]


_PARTS = {
    "aborted": Badge("pending", "Aborted"),
    "current": _RUNS[RunStatus.PROGRESSING],
    "done": Badge("healthy", "Completed"),
    "failed": Badge("failed", "Failed"),
    "not reached": Badge("pending", "Not reached"),
    "not started": Badge("pending", "Not started"),
    "skipped": Badge("pending", "Skipped"),
    "to come": Badge("pending", "Not started"),
}


def stage_state(state: str, run: StagedRun, *, failed: int) -> Badge:
    """Return the status of a stage; where the run waits, the current one has the status of the run."""
    of_run = run_state(run)
    if state == "current" and of_run.words == "Waiting for approval":
        return Badge(of_run.kind, "Pending approval")
    is_held = state == "current" and not of_run.words.startswith(
        _RUNS[RunStatus.PROGRESSING].words
    )
    return of_run if is_held else _at_work(_PARTS[state], failed)


def outcome_kind(outcome: str) -> str:
    return _OUTCOMES.get(outcome, "not-selected")


def picked_of(placement: Placement, counts: HealthCounts) -> str:
    """Return how many clusters a placement has, of how many: "5 of 5", "all 9", "3 of 3 named"."""
    if placement.placement_type == PlacementType.PICK_ALL:
        return f"all {counts.scheduled:,}"
    named = " named" if placement.placement_type == PlacementType.PICK_FIXED else ""
    return f"{counts.scheduled:,} of {counts.wanted:,}{named}"
