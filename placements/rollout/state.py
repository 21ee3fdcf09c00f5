"""Where a rolling update stands: every cluster of the placement, and what is wanted (lifecycle A.1, A.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from placements.scheduling.door.strategy import RollingUpdate
from placements.scheduling.policy import PlacementPolicy, PlacementType


class Phase(StrEnum):
    """How far a cluster has come with what was last started there."""

    NOTHING = "nothing"
    APPLYING = "applying"
    SETTLING = "settling"
    AVAILABLE = "available"
    FAILED = "failed"
    REMOVING = "removing"
    REMOVE_FAILED = "remove-failed"
    REMOVED = "removed"


EMPTY = frozenset({Phase.NOTHING, Phase.REMOVED})


class Hold(StrEnum):
    """Whether somebody keeps new work from starting: a pause, or a stop until a new run (lifecycle A.12)."""

    NONE = "none"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of one cluster that the placement has, wants, or had.

    `wanted` is the version that belongs there (a binding Scheduled or Bound), None where nothing does
    (Unscheduled, or the placement is being deleted). `running` is the version last started there, whatever
    became of it. SETTLING is applied and not ready, also when it was available before; `timed_since` is
    when it was applied, given once nothing but time can tell: all that can be observed is ready, and some
    kind cannot be. `attempts` have been made at what runs; after a failure the next is due at `retry_at`,
    None for at once. `unreachable_since` is set once the heartbeat limit has passed.
    """

    name: str
    wanted: str | None
    running: str | None = None
    phase: Phase = Phase.NOTHING
    timed_since: datetime | None = None
    attempts: int = 0
    retry_at: datetime | None = None
    unreachable_since: datetime | None = None
    is_in_fleet: bool = True

    @property
    def is_reachable(self) -> bool:
        """Tell whether work can be started here now."""
        return self.is_in_fleet and self.unreachable_since is None

    def wanting(self, version: str | None) -> "ClusterFacts":
        """Give what is known where this version, or nothing, belongs there."""
        return self if self.wanted == version else replace(self, wanted=version)

    def being(self, phase: Phase, *, running: str | None) -> "ClusterFacts":
        """Give what is known where something was carried out; `replace` takes thrice as long."""
        rest = (self.timed_since, self.attempts, self.retry_at, self.unreachable_since, self.is_in_fleet)
        return ClusterFacts(self.name, self.wanted, running, phase, *rest)

    @property
    def has_resources(self) -> bool:
        """Tell whether anything was started here that no confirmed removal has taken away."""
        return self.phase not in EMPTY


@dataclass(frozen=True, slots=True)
class Deletion:
    """The placement is being deleted (lifecycle A.11); `number` of clusters were selected at that moment."""

    started_at: datetime
    number: int
    abandons: bool = False


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Everything that `next_actions` looks at, as it is `at` a moment; clusters come in any order."""

    clusters: tuple[ClusterFacts, ...]
    policy: PlacementPolicy
    strategy: RollingUpdate
    at: datetime
    hold: Hold = Hold.NONE
    deletion: Deletion | None = None

    @property
    def number_selected(self) -> int:
        """Count the clusters selected: N for updates and additions (lifecycle A.2)."""
        return sum(cluster.wanted is not None for cluster in self.clusters)

    @property
    def number_asked_for(self) -> int:
        """Count the clusters that the policy asks for: N for the floor of removals (lifecycle A.2)."""
        if self.policy.placement_type is PlacementType.PICK_N:
            return self.policy.number_of_clusters or 0
        if self.policy.placement_type is PlacementType.PICK_FIXED:
            return len(self.policy.cluster_names)
        return self.number_selected

    def settles_at(self, cluster: ClusterFacts) -> datetime | None:
        """Give when time alone makes a cluster available, None where time alone does not (lifecycle A.1)."""
        if cluster.phase is not Phase.SETTLING or cluster.timed_since is None:
            return None
        return cluster.timed_since + timedelta(seconds=self.strategy.unavailable_period_seconds)

    def is_available(self, cluster: ClusterFacts) -> bool:
        """Tell whether a cluster counts as available: reached, applied, ready as far as anyone can see."""
        if cluster.phase is Phase.AVAILABLE or not cluster.is_reachable:
            return cluster.is_reachable
        settles_at = self.settles_at(cluster)
        return settles_at is not None and settles_at <= self.at

    def is_done(self, cluster: ClusterFacts) -> bool:
        """Tell whether a cluster is as it should be; one out of reach is taken at its last word."""
        if cluster.wanted is None:
            return not cluster.has_resources
        is_well = cluster.phase is Phase.AVAILABLE or self.is_available(cluster)
        return cluster.running == cluster.wanted and is_well

    def wanting(self, versions: Mapping[str, str], policy: PlacementPolicy | None = None) -> "RolloutState":
        """Give this state under a draft: who shall have which version; all others leave, new names join."""
        here = {cluster.name for cluster in self.clusters}
        stay = [cluster.wanting(versions.get(cluster.name)) for cluster in self.clusters]
        join = [ClusterFacts(name, version) for name, version in versions.items() if name not in here]
        return replace(self, clusters=(*stay, *join), policy=policy or self.policy)
