"""Rows to the state of a rollout: where every cluster of a placement stands, and what is wanted there."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Case, DateTimeField, F, TextField, When
from django.db.models.functions import Cast

from clusters.models import MemberCluster, Membership
from placements.models import Binding, Placement, ResourceSnapshot
from placements.overriding import Applying, applying_to, frozen_of
from placements.rollout import disruption
from placements.rollout.overrides import cluster_version
from placements.rollout.state import EMPTY, ClusterFacts, Deletion, Hold, Phase, RolloutState
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.strategy import PropagationPolicy
from placements.scheduling.fleet import EligibilityKind, collector_paused
from placements.scheduling.spec import ClusterResourcePlacement, RollingUpdate, StrategyType, parse_placement


class Held(NamedTuple):
    """What a binding says of one cluster; plain values and JSON as text, as there may be thousands."""

    pk: int
    cluster_name: str
    state: str
    running_version: str
    phase: str
    phase_since: datetime | None
    timed_since: datetime | None
    attempts: int
    retry_at: datetime | None
    picked_at: datetime
    message: str
    failure: str
    overrides_text: str
    conditions_text: str

    @property
    def override_snapshots(self) -> list[int]:
        """Give the keys of the overrides that belong to what was last started."""
        found: list[int] = json.loads(self.overrides_text)
        return found

    @property
    def conditions(self) -> dict[str, list[str]]:
        """Give the conditions as they were noted last."""
        found: dict[str, list[str]] = json.loads(self.conditions_text)
        return found

    def having(self, columns: Mapping[str, Any]) -> "Held":
        """Give it after these columns of the row were written."""
        known = {name: value for name, value in columns.items() if name in self._fields}
        if "override_snapshots" in columns:
            known["overrides_text"] = json.dumps(columns["override_snapshots"])
        return self._replace(**known)


def _held(placement: Placement) -> Iterator[Held]:
    """Read the bindings of a placement, by cluster; one query."""
    rows = Binding.objects.filter(placement=placement).order_by("cluster_name")
    texts = {
        "overrides_text": Cast("override_snapshots", TextField()),
        "conditions_text": Cast("conditions", TextField()),
    }
    return map(Held._make, rows.annotate(**texts).values_list(*Held._fields))


@dataclass(frozen=True)
class Standing:
    """What one look at a rollout starts from; taken at one moment.

    `target` is the resource snapshot to carry out, None while there is none. `version` names what is wanted
    as a whole: the resources, how they are applied, and every override that applies somewhere; what belongs
    on one cluster is in `state`, and the overrides that do, by cluster, in `overrides`. `left_behind` are
    bindings that ended because their clusters left the fleet: what is there stays there (lifecycle B.8.3).
    `started` are the columns that this look has written since, by the key of the binding.
    """

    placement: Placement
    manifest: ClusterResourcePlacement
    bindings: tuple[Held, ...]
    left_behind: tuple[Held, ...]
    target: ResourceSnapshot | None
    version: str
    state: RolloutState
    overrides: Applying
    started: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_staged(self) -> bool:
        """Tell whether staged runs, and not this rolling update, carry the placement out."""
        return self.manifest.spec.strategy.type is StrategyType.EXTERNAL


def is_staged(placement: Placement) -> bool:
    """Tell whether staged runs carry a placement out."""
    return parse_placement(placement.document).spec.strategy.type is StrategyType.EXTERNAL


def standing_of(placement: Placement, *, now: datetime) -> Standing:
    """Take the state of a placement's rollout."""
    with collector_paused():
        return _taken(placement, now=now)


def _taken(placement: Placement, *, now: datetime) -> Standing:
    manifest = parse_placement(placement.document)
    bindings = tuple(_held(placement))
    target = target_of(placement)
    overrides = applying_to(placement.name, target) if target else {}
    versions = Versions.of(target, manifest, overrides) if target else None
    clusters = _members(placement)
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


def _wanted(versions: "Versions | None", binding: Held) -> str | None:
    return versions.of_cluster(binding.cluster_name) if versions else None


def _is_left_behind(binding: Held, cluster: "Member | None") -> bool:
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


def facts_of(binding: Held, cluster: "Member | None", version: str | None) -> ClusterFacts:
    """Give what is known of one cluster of the placement."""
    return ClusterFacts(
        binding.cluster_name,
        None if binding.state == BindingState.UNSCHEDULED else version,
        running=binding.running_version or None,
        phase=_PHASES[binding.phase],
        timed_since=binding.timed_since,
        attempts=binding.attempts,
        retry_at=binding.retry_at,
        unreachable_since=cluster.unreachable_since if cluster else None,
        is_in_fleet=cluster is not None and cluster.membership != Membership.LEAVING,
    )


_PHASES = {phase.value: phase for phase in Phase}


class Member(NamedTuple):
    """What of a member cluster says whether it can be called; plain values, as there may be thousands."""

    name: str
    membership: str
    unreachable_since: datetime | None


def _members(placement: Placement) -> Mapping[str, Member]:
    """Give the members that a placement has something on or is to have, by name; one query."""
    names = Binding.objects.filter(placement=placement).values("cluster_name")
    rows = MemberCluster.objects.filter(name__in=names).annotate(unreachable_since=_unreachable_since())
    return {facts[0]: Member(*facts) for facts in rows.values_list(*Member._fields)}


def _unreachable_since() -> Case:
    """Say since when nothing can be done on a cluster; where nobody speaks to it, always."""
    return Case(
        When(driver="", then=F("joined_at")),
        When(verdict__in=_SILENT, then=F("verdict_since")),
        output_field=DateTimeField(null=True),
    )


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
