"""Rows to the state of a rollout: where every cluster of a placement stands, and what is wanted there."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from clusters.models import MemberCluster, Membership
from placements.models import Binding, Placement, ResourceSnapshot
from placements.overriding import Applying, applying_to, frozen_of
from placements.rollout import disruption
from placements.rollout.overrides import cluster_version
from placements.rollout.state import EMPTY, ClusterFacts, Deletion, Hold, Phase, RolloutState
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.strategy import PropagationPolicy
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.spec import ClusterResourcePlacement, RollingUpdate, StrategyType, parse_placement

_READ = (
    "placement_id",
    "cluster_name",
    "state",
    "running_version",
    "phase",
    "timed_since",
    "attempts",
    "retry_at",
    "work_token",
    "picked_at",
    "phase_since",
    "message",
    "failure",
    "override_snapshots",
    "conditions",
)


@dataclass(frozen=True)
class Standing:
    """What one look at a rollout starts from; taken at one moment.

    `target` is the resource snapshot to carry out, None while there is none. `version` names what is wanted
    as a whole: the resources, how they are applied, and every override that applies somewhere; what belongs
    on one cluster is in `state`, and the overrides that do, by cluster, in `overrides`. `left_behind` are
    bindings that ended because their clusters left the fleet: what is there stays there (lifecycle B.8.3).
    """

    placement: Placement
    manifest: ClusterResourcePlacement
    bindings: tuple[Binding, ...]
    left_behind: tuple[Binding, ...]
    target: ResourceSnapshot | None
    version: str
    state: RolloutState
    overrides: Applying

    @property
    def is_staged(self) -> bool:
        """Tell whether staged runs, and not this rolling update, carry the placement out."""
        return self.manifest.spec.strategy.type is StrategyType.EXTERNAL


def is_staged(placement: Placement) -> bool:
    """Tell whether staged runs carry a placement out."""
    return parse_placement(placement.document).spec.strategy.type is StrategyType.EXTERNAL


def standing_of(placement: Placement, *, now: datetime) -> Standing:
    """Take the state of a placement's rollout."""
    manifest = parse_placement(placement.document)
    rows = Binding.objects.filter(placement=placement).only(*_READ)
    bindings = tuple(rows.order_by("cluster_name"))
    target = target_of(placement)
    overrides = applying_to(placement.name, target) if target else {}
    versions = Versions.of(target, manifest, overrides) if target else None
    clusters = _members(binding.cluster_name for binding in bindings)
    left_behind = tuple(one for one in bindings if _is_left_behind(one, clusters.get(one.cluster_name)))
    bindings = tuple(one for one in bindings if one not in left_behind) if left_behind else bindings
    wanted = versions if placement.deleting_since is None else None
    facts = tuple(
        facts_of(binding, clusters.get(binding.cluster_name), _wanted(wanted, binding))
        for binding in bindings
    )
    state = RolloutState(
        facts,
        manifest.spec.policy,
        manifest.spec.strategy.rolling_update or RollingUpdate(),
        now,
        _hold(placement),
        _deletion(placement, manifest),
    )
    version = versions.whole if versions else ""
    return Standing(placement, manifest, bindings, left_behind, target, version, state, overrides)


def _wanted(versions: "Versions | None", binding: Binding) -> str | None:
    return versions.of_cluster(binding.cluster_name) if versions else None


def _is_left_behind(binding: Binding, cluster: "Member | None") -> bool:
    is_gone = cluster is None or cluster.membership == Membership.LEAVING
    return is_gone and binding.state == BindingState.UNSCHEDULED


def target_of(placement: Placement) -> ResourceSnapshot | None:
    """Give the resource snapshot to carry out: the latest, or the one that a rollback holds."""
    rows = ResourceSnapshot.objects.filter(placement=placement)
    if placement.held_number is not None:
        return rows.filter(number=placement.held_number).first()
    return rows.filter(is_latest=True).first()


@dataclass(frozen=True, slots=True)
class Versions:
    """What clusters are to run: `plain` where no override applies, otherwise as in `by_cluster`."""

    plain: str
    by_cluster: Mapping[str, str]
    whole: str

    @classmethod
    def of(
        cls, target: ResourceSnapshot, manifest: ClusterResourcePlacement, overrides: Applying
    ) -> "Versions":
        """Name the versions; each set of overrides is hashed once, whatever the number of clusters."""
        plain = version_of(target, manifest)
        if not overrides:
            return cls(plain, {}, plain)
        applied = manifest.spec.strategy.apply_strategy
        sets = {several: tuple(map(frozen_of, several)) for several in set(overrides.values())}
        names = {
            several: cluster_version(target.content_hash, frozen, applied) for several, frozen in sets.items()
        }
        whole = _hash([plain, sorted({str(one) for several in sets for one in several})])
        return cls(plain, {cluster: names[several] for cluster, several in overrides.items()}, whole)

    def of_cluster(self, name: str) -> str:
        """Give what one cluster is to run."""
        return self.by_cluster.get(name, self.plain)


def version_of(snapshot: ResourceSnapshot, manifest: ClusterResourcePlacement) -> str:
    """Name what a cluster is to run: the content of the resources, and how it is applied (lifecycle A.1)."""
    return version_of_content(snapshot.content_hash, manifest)


def version_of_content(content_hash: str, manifest: ClusterResourcePlacement) -> str:
    """Name the version of resources that are not frozen yet, as one of a snapshot of them."""
    return _hash([content_hash, manifest.spec.strategy.apply_strategy.to_plain()])


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def facts_of(binding: Binding, cluster: "Member | None", version: str | None) -> ClusterFacts:
    """Give what is known of one cluster of the placement."""
    return ClusterFacts(
        binding.cluster_name,
        None if binding.state == BindingState.UNSCHEDULED else version,
        running=binding.running_version or None,
        phase=Phase(binding.phase),
        timed_since=binding.timed_since,
        attempts=binding.attempts,
        retry_at=binding.retry_at,
        unreachable_since=_unreachable_since(cluster),
        is_in_fleet=cluster is not None and cluster.membership != Membership.LEAVING,
    )


class Member(NamedTuple):
    """What of a member cluster says whether it can be called; plain values, as there may be thousands."""

    name: str
    membership: str
    driver: str
    verdict: str
    verdict_since: datetime
    joined_at: datetime


def _members(names: Iterable[str]) -> Mapping[str, Member]:
    listed = list(names)
    found: dict[str, Member] = {}
    for start in range(0, len(listed), 500):
        rows = MemberCluster.objects.filter(name__in=listed[start : start + 500])
        found |= {facts[0]: Member(*facts) for facts in rows.values_list(*Member._fields)}
    return found


def _unreachable_since(cluster: Member | None) -> datetime | None:
    """Give since when nothing can be done there; where nobody speaks to the cluster, always."""
    if cluster is None:
        return None
    if not cluster.driver:
        return cluster.joined_at
    return cluster.verdict_since if cluster.verdict in _SILENT else None


_SILENT = (EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)


def _hold(placement: Placement) -> Hold:
    if placement.paused_since:
        return Hold.PAUSED
    return Hold.STOPPED if placement.is_stopped else Hold.NONE


def _deletion(placement: Placement, manifest: ClusterResourcePlacement) -> Deletion | None:
    if placement.deleting_since is None:
        return None
    policy = manifest.spec.strategy.delete_strategy.propagation_policy
    return Deletion(
        placement.deleting_since, placement.deletion_number, abandons=policy is PropagationPolicy.ABANDON
    )


def evictable(standing: Standing) -> disruption.PlacementStanding:
    """Give what an eviction has to know of the placement."""
    policy, state = standing.manifest.spec.policy, standing.state
    return disruption.PlacementStanding(
        policy.placement_type,
        {one.name: _stands(one, state) for one in state.clusters},
        standing.placement.number_of_clusters,
        is_being_deleted=standing.placement.deleting_since is not None,
    )


def _stands(cluster: ClusterFacts, state: RolloutState) -> disruption.Standing:
    if cluster.phase in EMPTY:
        return disruption.Standing.PLANNED
    if cluster.phase in (Phase.REMOVING, Phase.REMOVE_FAILED):
        return disruption.Standing.LEAVING
    if cluster.phase is Phase.FAILED:
        return disruption.Standing.FAILED
    is_available = state.is_available(cluster)
    return disruption.Standing.AVAILABLE if is_available else disruption.Standing.WORKING
