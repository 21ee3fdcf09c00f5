"""The state of a rollout: each cluster with target and failures (`rules/lifecycle.md#terms`)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from placements.manifests.policy import PlacementPolicy, PlacementType
from placements.manifests.strategy import RollingUpdate

FIRST_DELAY = timedelta(seconds=5)
LONGEST_DELAY = timedelta(minutes=15)


class Phase(StrEnum):
    """How far a cluster has come with what was last started there. APPLIED: not available yet."""

    NOT_STARTED = "nothing"
    APPLYING = "applying"
    APPLIED = "settling"
    AVAILABLE = "available"
    FAILED = "failed"
    REMOVING = "removing"
    REMOVE_FAILED = "remove-failed"
    REMOVED = "removed"


EMPTY = frozenset({Phase.NOT_STARTED, Phase.REMOVED})
IN_FLIGHT = frozenset({Phase.APPLYING, Phase.APPLIED, Phase.REMOVING})


class Suspension(StrEnum):
    """Whether a user keeps new work from starting: a pause, or a stop until a new rollout.

    See `rules/lifecycle.md#actions`.
    """

    NONE = "none"
    PAUSED = "paused"
    STOPPED = "stopped"


class ClusterState(NamedTuple):
    """What is known of one cluster that the placement has, wants, or had; there may be thousands.

    `wanted` is the version that belongs there (a binding Scheduled or Bound), None where nothing does
    (Unscheduled, or the placement is being deleted). `running` is the version last started there, whatever
    the result. APPLIED is not ready, also when it was available before; `untrackable_since` is when it was
    applied, set once all that can be observed is ready, and some kind cannot be observed.
    `attempts` have been made at what runs; after a failure the next is due at `retry_at`, None for at once.
    `unreachable_since` is set once the heartbeat limit has passed, and where no driver applies anything.
    """

    name: str
    wanted: str | None
    running: str | None = None
    phase: Phase = Phase.NOT_STARTED
    untrackable_since: datetime | None = None
    attempts: int = 0
    retry_at: datetime | None = None
    unreachable_since: datetime | None = None
    is_in_fleet: bool = True
    phase_changed_at: datetime | None = None
    has_driver: bool = True
    unanswered_since: datetime | None = None
    """Since when it does not answer; work may still start there until the heartbeat limit has passed."""
    is_releasable: bool = False
    """Its driver stops managing the objects of a placement that is deleted with Abandon."""

    @property
    def is_reachable(self) -> bool:  # work can be started here now
        return self.is_in_fleet and self.unreachable_since is None

    @property
    def has_resources(
        self,
    ) -> bool:  # something was started that no confirmed removal ended
        return self.phase not in EMPTY

    @property
    def has_failed(self) -> bool:
        return self.phase in (Phase.FAILED, Phase.REMOVE_FAILED)

    def with_wanted(self, version: str | None) -> "ClusterState":
        """Return what is known where this version, or nothing, belongs there."""
        if self.wanted == version:
            return self
        return ClusterState(self.name, version, *self[2:])

    def completed(self, phase: Phase, *, running: str | None) -> "ClusterState":
        """Return the state after work has ended in this phase."""
        return self._replace(running=running, phase=phase, unanswered_since=None)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The placement is being deleted; `number` of clusters were selected at that moment."""

    started_at: datetime
    number: int
    abandons: bool = False


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Everything that decides about a rolling update, as it is `at` a moment; clusters come in any order."""

    clusters: tuple[ClusterState, ...]
    policy: PlacementPolicy
    strategy: RollingUpdate
    at: datetime
    suspension: Suspension = Suspension.NONE
    deletion: Deletion | None = None

    @property
    def number_selected(self) -> int:
        """Return the number of clusters selected: N for updates and additions.

        See `rules/lifecycle.md#budgets`.
        """
        return sum(cluster.wanted is not None for cluster in self.clusters)

    @property
    def number_required(self) -> int:
        """Return the number of clusters that the policy requests: N for removals.

        See `rules/lifecycle.md#budgets`.
        """
        if self.policy.placement_type is PlacementType.PICK_N:
            return self.policy.number_of_clusters or 0
        if self.policy.placement_type is PlacementType.PICK_FIXED:
            return len(self.policy.cluster_names)
        return self.number_selected

    def available_at(self, cluster: ClusterState) -> datetime | None:
        """Return when time alone makes a cluster available, None where time alone does not.

        See `rules/lifecycle.md#terms`.
        """
        if cluster.phase is not Phase.APPLIED or cluster.untrackable_since is None:
            return None
        return cluster.untrackable_since + timedelta(
            seconds=self.strategy.unavailable_period_seconds
        )

    def late_at(self, cluster: ClusterState) -> datetime | None:
        """Return when a cluster that is applied and not ready counts as not available; None otherwise."""
        if (
            cluster.phase is not Phase.APPLIED
            or cluster.untrackable_since
            or not cluster.phase_changed_at
        ):
            return None
        period = timedelta(seconds=self.strategy.unavailable_period_seconds)
        return (
            cluster.phase_changed_at + period + timedelta.resolution
        )  # ready in time is not late

    def is_available(self, cluster: ClusterState) -> bool:
        """Return whether a cluster counts as available: reachable, applied, ready as far as observable."""
        if cluster.phase is Phase.AVAILABLE or not cluster.is_reachable:
            return cluster.is_reachable
        available_at = self.available_at(cluster)
        return available_at is not None and available_at <= self.at

    def is_done(self, cluster: ClusterState) -> bool:
        """Return whether a cluster is as it should be; of an unreachable one the last report counts."""
        if cluster.wanted is None:
            return not cluster.has_resources
        is_ready = cluster.phase is Phase.AVAILABLE or self.is_available(cluster)
        return cluster.running == cluster.wanted and is_ready

    def with_wanted(
        self, versions: Mapping[str, str], policy: PlacementPolicy | None = None
    ) -> "RolloutState":
        """Return this state under a draft: `versions` by cluster; all others are removed, new names added."""
        present = {cluster.name for cluster in self.clusters}
        kept = [
            cluster.with_wanted(versions.get(cluster.name)) for cluster in self.clusters
        ]
        added = [
            ClusterState(name, version)
            for name, version in versions.items()
            if name not in present
        ]
        return replace(self, clusters=(*kept, *added), policy=policy or self.policy)


def retry_delay(attempts: int) -> timedelta:
    """Return how long to wait after that many failed attempts: doubled each time, up to 15 minutes."""
    doublings = min(max(attempts, 1) - 1, 16)
    return min(FIRST_DELAY * (1 << doublings), LONGEST_DELAY)


class FailureKind(StrEnum):
    """Why a cluster does not have what belongs there."""

    OVERRIDE = "override"
    """An override could not be applied; nothing was sent to the cluster."""
    REFUSED = "refused"
    """The cluster rejected some objects or all."""
    UNREACHABLE = "unreachable"
    """The cluster did not answer, or not in time; whether the call took effect is unknown."""
    DIFFERS = "differs"
    """The cluster differs from what is wanted, and the apply strategy ReportDiff writes nothing."""


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """An object that was rejected, or is not available yet; `code` is for programs, `message` for people."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class OverrideFault:
    """The override that did not apply: its snapshot, the path in it, the object, and what is wrong."""

    override: str
    path: str
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed in a call; without a kind nothing failed, but objects are not ready."""

    kind: FailureKind | None = None
    objects: tuple[ObjectFault, ...] = ()
    override: OverrideFault | None = None

    def columns(self) -> dict[str, Any]:
        plain: list[dict[str, str]] = [
            asdict(object_fault) for object_fault in self.objects
        ]
        return {
            "failure": self.kind or "",
            "failed_objects": plain,
            "failed_override": asdict(self.override) if self.override else None,
        }


NO_FAILURE = Failure()


def objects_of(plain: Iterable[Mapping[str, str]]) -> tuple[ObjectFault, ...]:
    return tuple(ObjectFault(**document) for document in plain)
