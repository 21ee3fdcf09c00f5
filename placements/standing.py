"""Rows to the state of a rollout: where every cluster of a placement stands, and what is wanted there."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from clusters.models import MemberCluster, Membership
from placements.models import Binding, Placement, ResourceSnapshot
from placements.overriding import Applying, applying_to, frozen_of
from placements.rollout.overrides import cluster_version
from placements.rollout.state import ClusterFacts, Deletion, Hold, Phase, RolloutState
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.strategy import PropagationPolicy
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.spec import ClusterResourcePlacement, RollingUpdate, StrategyType, parse_placement


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


def standing_of(placement: Placement, *, now: datetime) -> Standing:
    """Take the state of a placement's rollout."""
    manifest = parse_placement(placement.document)
    bindings = tuple(Binding.objects.filter(placement=placement).order_by("cluster_name"))
    target = target_of(placement)
    overrides = applying_to(placement.name, target) if target else {}
    versions = Versions.of(target, manifest, overrides) if target else None
    clusters = _members(binding.cluster_name for binding in bindings)
    left_behind = tuple(one for one in bindings if _is_left_behind(one, clusters.get(one.cluster_name)))
    bindings = tuple(one for one in bindings if one not in left_behind)
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


def _is_left_behind(binding: Binding, cluster: MemberCluster | None) -> bool:
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
    return _hash([snapshot.content_hash, manifest.spec.strategy.apply_strategy.to_plain()])


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def facts_of(binding: Binding, cluster: MemberCluster | None, version: str | None) -> ClusterFacts:
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


def _members(names: Iterable[str]) -> Mapping[str, MemberCluster]:
    listed = list(names)
    found: dict[str, MemberCluster] = {}
    for start in range(0, len(listed), 500):
        rows = MemberCluster.objects.filter(name__in=listed[start : start + 500])
        found |= {row.name: row for row in rows.only(*_READ)}
    return found


_READ = ("name", "membership", "driver", "verdict", "verdict_since", "joined_at")


def _unreachable_since(cluster: MemberCluster | None) -> datetime | None:
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
