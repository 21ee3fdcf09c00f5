"""The result of `next_actions`: updates to start, blocked updates and their causes, the next sync."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from placements.engine.rollout.budget import Budgets
from placements.engine.rollout.state import Phase


class UpdateReason(StrEnum):
    """What makes a version start on a cluster.

    NEWER where a cluster is not available, UPDATE where it is, ADD where nothing is; RETRY after a failure.
    """

    NEWER = "new"
    RETRY = "retry"
    UPDATE = "update"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class StartUpdate:
    """Apply a version; another attempt at the same version has a higher number."""

    cluster: str
    version: str
    reason: UpdateReason
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the placement's resources from a cluster."""

    cluster: str
    attempt: int = 1


Action: TypeAlias = StartUpdate | Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What both planners return: the actions in the order in which they start, and when to sync again.

    Sync again at `requeue_at`, and whenever anything changes.
    """

    actions: tuple[Action, ...] = ()
    requeue_at: datetime | None = None


class BlockReason(StrEnum):
    """Why a cluster has to wait in a rolling update; `WaitReason` is for staged runs."""

    PAUSED = "paused"
    STOPPED = "stopped"
    NOT_IN_FLEET = "not-in-fleet"
    NOT_MONITORED = "not-monitored"
    UNREACHABLE = "unreachable"
    NOT_AVAILABLE = "not-available"
    RETRY_LATER = "retry-later"
    BEING_REMOVED = "being-removed"
    UPDATE_FLOOR = "update-floor"
    REMOVAL_FLOOR = "removal-floor"
    CEILING = "ceiling"
    DELETION_LIMIT = "deletion-limit"


@dataclass(frozen=True, slots=True)
class BlockedCluster:
    """A cluster that waits: what runs, what is wanted, what would start, what blocks it.

    See `rules/lifecycle.md#blocked-clusters`.

    `action` is None where a cluster became unreachable while it was worked on, or is not available in time;
    `since` is when that began. `retry_at` is when a retry is due. From `abandonable_from` on an operator may
    abandon the cluster (`rules/lifecycle.md#deletion`).
    """

    cluster: str
    reason: BlockReason
    action: Action | None
    running: str | None
    wanted: str | None
    retry_at: datetime | None = None
    abandonable_from: datetime | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class InProgressCluster:
    """A cluster that is being worked on; `available_at` is when time alone makes it available."""

    cluster: str
    phase: Phase
    available_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BlockedRemovals:
    """Removals that the minimum blocks: `selected_count` of `required` clusters.

    `is_permanent` if not even every selected cluster being available would allow the last of them.
    """

    selected_count: int
    required: int
    clusters: tuple[str, ...]
    is_permanent: bool


class RunPhase(StrEnum):
    """Work starts; it is in progress or due later; all is done; only a change of the inputs helps.

    The last is so too where nothing is left but retries of what has failed several times.
    """

    STARTS = "starts"
    WAITS = "waits"
    FINISHED = "finished"
    HALTED = "halted"


@dataclass(frozen=True, slots=True)
class RollingUpdateResult(SyncResult):
    """What may happen in a rolling update, and why not more.

    `budgets` are those after the actions. `unreachable` names the selected clusters that count in N and
    cannot be available; `may_still_hold` those unreachable or deleted that have resources of the placement
    as far as is known.
    """

    phase: RunPhase
    budgets: Budgets
    blocked: tuple[BlockedCluster, ...] = ()
    in_progress: tuple[InProgressCluster, ...] = ()
    unreachable: tuple[str, ...] = ()
    may_still_hold: tuple[str, ...] = ()

    @property
    def blocked_removals(self) -> BlockedRemovals | None:
        names = tuple(
            cluster.cluster
            for cluster in self.blocked
            if cluster.reason is BlockReason.REMOVAL_FLOOR
        )
        removals, selected = self.budgets.removals, self.budgets.updates.number
        is_permanent = selected < removals.minimum
        return (
            BlockedRemovals(selected, removals.number, names, is_permanent)
            if names
            else None
        )
