"""The state of a rollout, rolling or staged, from the rows of a placement, its bindings and clusters."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast

from clusters.drivers.base import SIMULATED
from clusters.drivers.registry import ACTING_DRIVERS, DRIVERS
from clusters.fleet import EligibilityKind, collector_paused
from clusters.models import MemberCluster, Membership
from clusters.queries import current_fleet
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.engine.disruption import (
    ClusterAvailability,
    EvictionContext,
)
from placements.engine.overrides import cluster_version
from placements.engine.rollout.staged_run import (
    Approval,
    ApprovalPoint,
    CannotStart,
    PlacementFacts,
    StagedRunPlan,
    StagedRunState,
    initialise,
    run_from_plain,
)
from placements.engine.rollout.state import (
    EMPTY,
    ClusterState,
    Deletion,
    Phase,
    RolloutState,
)
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.staged_update import (
    RunState,
    StagedStrategySpec,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.manifests.strategy import ApplyStrategy, RollingUpdate, StrategyType
from placements.models import (
    Binding,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    StagedRun,
    WaitingRemoval,
)
from placements.services.overrides.queries import Applying, applying_to, frozen_of
from placements.services.snapshots import JoinedNames, hash_of

_UNREACHABLE = (EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)
_PHASES = {phase.value: phase for phase in Phase}


_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)


class BindingColumns(NamedTuple):
    """A binding as plain values, with JSON as text, as there may be thousands.

    A plan reads those without a default: what the state of a rollout consists of.
    """

    pk: int
    cluster_name: str
    state: str
    applied_version: str
    phase: str
    phase_changed_at: datetime | None
    untrackable_since: datetime | None
    attempts: int
    retry_at: datetime | None
    picked_at: datetime = _FIRST_MOMENT
    message: str = ""
    failure: str = ""
    overrides_text: str = "[]"
    conditions_text: str = "{}"
    strategy_text: str | None = None
    started_versions: str = ""

    @property
    def apply_type(self) -> str:
        strategy = json.loads(self.strategy_text or "null") or {}
        return str(strategy.get("type", ""))

    @property
    def override_snapshots(self) -> list[int]:
        keys: list[int] = json.loads(self.overrides_text)
        return keys

    @property
    def conditions(self) -> dict[str, list[str]]:
        conditions: dict[str, list[str]] = json.loads(self.conditions_text)
        return conditions

    def updated(self, columns: Mapping[str, Any]) -> "BindingColumns":
        own = {name: value for name, value in columns.items() if name in self._fields}
        if "override_snapshots" in columns:
            own["overrides_text"] = json.dumps(columns["override_snapshots"])
        if "apply_strategy" in columns:
            own["strategy_text"] = json.dumps(columns["apply_strategy"])
        return self._replace(**own)


class Member(NamedTuple):
    """What of a member cluster decides whether it can be called; plain values, as there may be thousands."""

    name: str
    membership: str
    unreachable_since: datetime | None
    driver: str = SIMULATED
    unanswered_since: datetime | None = None

    @property
    def is_in_fleet(self) -> bool:
        return self.membership != Membership.LEAVING


_UNKNOWN_MEMBER = Member("", Membership.LEAVING, None)
"""That of a binding whose cluster has left the fleet."""


@dataclass(frozen=True)
class RolloutContext:
    """What one sync of a rollout starts from; read at one moment.

    `target` is the resource snapshot to roll out, None while there is none. What belongs on one cluster is in
    `state`, and its overrides, by cluster, in `overrides`. `left_behind` are
    bindings that ended because their clusters left the fleet: what is there stays there.
    `started` are the columns that this sync has written since, by the key of the binding.
    """

    placement: Placement
    manifest: ClusterResourcePlacement
    bindings: tuple[BindingColumns, ...]
    left_behind: tuple[BindingColumns, ...]
    target: ResourceSnapshot | None
    state: RolloutState
    overrides: Applying
    versions: "Versions"
    started: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_staged(
        self,
    ) -> bool:  # staged runs, not this rolling update, roll the placement out
        return self.manifest.spec.strategy.type is StrategyType.EXTERNAL

    @property
    def is_release(
        self,
    ) -> bool:  # the resources stay on the clusters, which no longer manage them
        return self.state.deletion is not None and self.state.deletion.abandons

    def with_versions(self, versions: "Versions") -> frozenset[str]:
        """Return the clusters on which these versions are available, with their overrides."""
        return frozenset(
            cluster.name
            for cluster in self.state.clusters
            if cluster.phase is Phase.AVAILABLE
            and cluster.running == versions.wanted_on(cluster.name, cluster.phase)
        )


_TEXTS: dict[str, Any] = {
    "overrides_text": Cast("override_snapshots", TextField()),
    "conditions_text": Cast("conditions", TextField()),
    "strategy_text": Cast("apply_strategy", TextField()),
}
_PLANNED: dict[str, Any] = {
    "phase_changed_at": Case(When(phase=Phase.APPLIED, then="phase_changed_at"))
}
"""Of other clusters a plan needs no time: a conversion of each would take long."""


@collector_paused()
def load_rollout_context(
    placement: Placement, *, now: datetime, plans: bool = False
) -> RolloutContext:
    """Return what a sync of a rollout starts from; four queries.

    A plan needs only those columns of bindings that the state has: a large placement has thousands.
    """
    own = Binding.objects.filter(placement=placement).order_by()
    if plans:
        bindings = _planned(own)
    else:
        columns = (_TEXTS.get(name, name) for name in BindingColumns._fields)
        rows = own.order_by("cluster_name").values_list(*columns)
        bindings = tuple(BindingColumns(*values) for values in rows)
    members = _members(own)
    target = target_of(placement)
    overrides = applying_to(placement.full_name, target)
    manifest = parse_placement(placement.document)
    versions = wanted = Versions.of(target, manifest, overrides)
    left_behind = tuple(binding for binding in bindings if _has_left(binding, members))
    if left_behind:
        bindings = tuple(
            binding for binding in bindings if not _has_left(binding, members)
        )
    deletion = None
    if placement.deleting_since is not None:
        wanted = NO_VERSIONS
        deletion = Deletion(
            placement.deleting_since,
            placement.deletion_number,
            abandons=manifest.spec.strategy.abandons,
        )
    clusters = tuple(
        cluster_state(
            binding,
            members.get(binding.cluster_name, _UNKNOWN_MEMBER),
            wanted.wanted_on(binding.cluster_name, binding.phase),
        )
        for binding in bindings
    )
    state = RolloutState(
        clusters,
        manifest.spec.policy,
        manifest.spec.strategy.rolling_update or RollingUpdate(),
        now,
        placement.suspension,
        deletion,
    )
    return RolloutContext(
        placement,
        manifest,
        bindings,
        left_behind,
        target,
        state,
        overrides,
        versions,
    )


def _planned(bindings: QuerySet[Binding]) -> tuple[BindingColumns, ...]:
    """Return bindings by cluster name as a plan reads them, without keys: most differ in nothing else."""
    names = BindingColumns._fields[2 : -len(BindingColumns._field_defaults)]
    columns = (_PLANNED.get(name, F(name)) for name in names)
    alike = bindings.values_list(*columns).annotate(names=JoinedNames("cluster_name"))
    planned = (
        BindingColumns(0, name, *values)
        for *values, clusters in alike
        for name in clusters.split(",")
    )
    return tuple(sorted(planned, key=itemgetter(1)))


def _has_left(binding: BindingColumns, members: Mapping[str, Member]) -> bool:
    """Return whether a binding ended because its cluster left the fleet."""
    member = members.get(binding.cluster_name, _UNKNOWN_MEMBER)
    return binding.state == BindingState.UNSCHEDULED and not member.is_in_fleet


def _members(bindings: QuerySet[Binding]) -> Mapping[str, Member]:
    """Return the members of these bindings, by name; one query.

    A cluster without a driver counts as unreachable since it joined. On a live hub what the hub reports
    counts: its controllers reach the clusters.
    """
    unreachable_since = Case(
        When(~Q(hub=LOCAL_HUB), then=None),
        When(~Q(driver__in=DRIVERS), then=F("joined_at")),
        When(verdict__in=_UNREACHABLE, then=F("verdict_since")),
        output_field=DateTimeField(null=True),
    )
    rows = MemberCluster.objects.filter(name__in=bindings.values("cluster_name"))
    alike = rows.annotate(unreachable_since=unreachable_since).values_list(
        *Member._fields[1:]
    )
    return {
        name: Member(name, *values)
        for *values, names in alike.annotate(names=JoinedNames("name"))
        for name in names.split(",")
    }


def cluster_state(
    binding: BindingColumns, member: Member, version: str | None
) -> ClusterState:
    """Return what is known of one cluster of the placement; `version` is the one wanted there."""
    if binding.state == BindingState.UNSCHEDULED:
        version = None
    return ClusterState(
        binding.cluster_name,
        version,
        running=binding.applied_version or None,
        phase=_PHASES[binding.phase],
        untrackable_since=binding.untrackable_since,
        attempts=binding.attempts,
        retry_at=binding.retry_at,
        unreachable_since=member.unreachable_since,
        is_in_fleet=member.is_in_fleet,
        phase_changed_at=binding.phase_changed_at,
        has_driver=member.driver in DRIVERS or current_hub_id() != LOCAL_HUB,
        unanswered_since=member.unanswered_since,
        is_releasable=member.is_in_fleet and member.driver in ACTING_DRIVERS,
    )


def target_of(placement: Placement) -> ResourceSnapshot | None:
    """Return the resource snapshot to roll out: the latest, or the one that a rollback has pinned."""
    number = placement.pinned_snapshot
    wanted = Q(is_latest=True) if number is None else Q(number=number)
    return ResourceSnapshot.objects.filter(wanted, placement=placement).first()


@dataclass(frozen=True, slots=True)
class Versions:
    """What clusters are to run: `plain` where no override applies, otherwise as in `by_cluster`.

    `whole` identifies what is wanted as a whole: the resources, how they are applied, and every override that
    applies somewhere. The texts are empty while there is nothing to roll out.

    `sharing` is all of the apply strategy that other drivers act on: consent to co-ownership.

    `acting`: the clusters whose driver acts on an apply strategy other than the defaults, and `strategy` what
    distinguishes their versions. `is_empty`: no resources are selected.
    """

    plain: str
    by_cluster: Mapping[str, str]
    whole: str
    is_empty: bool = False
    acting: frozenset[str] = frozenset()
    strategy: Mapping[str, Any] | None = None
    sharing: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        target: ResourceSnapshot | None,
        manifest: ClusterResourcePlacement,
        overrides: Applying,
    ) -> "Versions":
        """Return the versions; each set of overrides is hashed once, whatever the number of clusters."""
        if target is None:
            return NO_VERSIONS
        plain, is_empty = version_of(target, manifest), not target.objects_count
        apply_strategy = manifest.spec.strategy.apply_strategy
        acting, strategy, sharing = frozenset[str](), None, None
        if apply_strategy.allow_co_ownership:
            takeover = apply_strategy.when_to_take_over.value
            sharing = {"allowCoOwnership": True, "whenToTakeOver": takeover}
        if apply_strategy != ApplyStrategy():
            rows = MemberCluster.objects.filter(driver__in=ACTING_DRIVERS)
            acting, strategy = (
                frozenset(rows.values_list("name", flat=True)),
                apply_strategy.to_plain(),
            )
        names = {
            several: cluster_version(
                target.content_hash, tuple(map(frozen_of, several)), apply_strategy
            )
            for several in set(overrides.values())
        }
        whole = plain
        if overrides:
            whole = _hash([plain, sorted(set(map(str, chain.from_iterable(names))))])
        if acting or sharing:
            whole = _hash([whole, strategy])
        by_cluster = {cluster: names[several] for cluster, several in overrides.items()}
        return cls(plain, by_cluster, whole, is_empty, acting, strategy, sharing)

    def of_cluster(self, name: str) -> str:
        version = self.by_cluster.get(name, self.plain)
        strategy = self.strategy_on(name)
        if strategy:
            version = _hash([version, strategy])
        return version

    def strategy_on(self, name: str) -> Mapping[str, Any] | None:
        """Return what the driver of a cluster acts on of the apply strategy; None for the defaults."""
        return self.strategy if name in self.acting else self.sharing

    def wanted_on(self, name: str, phase: str) -> str | None:
        """Return what a cluster in this phase is to run; of no resources nothing, unless it holds some."""
        if self.is_empty and phase in EMPTY:
            return None
        return self.of_cluster(name) or None


NO_VERSIONS = Versions("", {}, "")
"""What clusters are to run of a placement without a resource snapshot, or that is being deleted: nothing."""


def version_of(snapshot: ResourceSnapshot, manifest: ClusterResourcePlacement) -> str:
    """Return the version of a snapshot: the content of the resources, and how it is applied.

    See `rules/lifecycle.md#terms`.
    """
    return version_of_content(snapshot.content_hash, manifest)


def version_of_content(content_hash: str, manifest: ClusterResourcePlacement) -> str:
    return _hash(
        [content_hash, manifest.spec.strategy.apply_strategy.effective().to_plain()]
    )


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def eviction_context(context: RolloutContext) -> EvictionContext:
    is_available = context.state.is_available
    return _eviction_context(
        context.placement,
        {
            cluster.name: _availability(
                cluster.phase, is_available=is_available(cluster)
            )
            for cluster in context.state.clusters
        },
    )


def eviction_contexts(
    placements: Collection[Placement],
    clusters: Collection[str],
    *,
    limited: Collection[Placement],
    now: datetime,
) -> dict[int, EvictionContext]:
    """Return what evictions from these clusters have to know, by placement; two queries.

    The other clusters of the `limited` placements are counted, for a budget needs no more: in an index, but
    for those that time alone makes available.
    """
    staying = MemberCluster.objects.exclude(membership=Membership.LEAVING)
    reachable = staying.filter(
        ~Q(hub=LOCAL_HUB) | (Q(driver__in=DRIVERS) & ~Q(verdict__in=_UNREACHABLE))
    ).values("name")
    rows = Binding.objects.filter(
        ~Q(state=BindingState.UNSCHEDULED) | Q(cluster_name__in=staying.values("name")),
        placement__in=placements,
    )
    started = Value(now, DateTimeField()) - F("placement__unavailable_period")
    by_time = Q(phase=Phase.APPLIED, untrackable_since__lte=started)
    is_ready = Q(phase=Phase.AVAILABLE, cluster_name__in=reachable)
    read = rows.filter(
        Q(cluster_name__in=clusters) | Q(phase=Phase.APPLIED, placement__in=limited)
    ).annotate(
        is_ready=Case(
            When(is_ready | by_time & Q(cluster_name__in=reachable), then=True),
            default=False,
        )
    )
    here: dict[int, dict[str, ClusterAvailability]] = {
        placement.pk: {} for placement in placements
    }
    for pk, name, phase, is_available in read.values_list(
        "placement", "cluster_name", "phase", "is_ready"
    ):
        here[pk][name] = _availability(_PHASES[phase], is_available=is_available)
    counted = rows.filter(~Q(phase=Phase.APPLIED), placement__in=limited)
    counts = (
        counted.exclude(cluster_name__in=clusters)
        .order_by()
        .values("placement")
        .annotate(ready=Count("pk", filter=is_ready), total=Count("pk"))
    )
    others = {
        pk: both for pk, *both in counts.values_list("placement", "ready", "total")
    }
    return {
        placement.pk: _eviction_context(
            placement, here[placement.pk], *others.get(placement.pk, ())
        )
        for placement in placements
    }


def _availability(phase: Phase, *, is_available: bool) -> ClusterAvailability:
    usual = (
        ClusterAvailability.AVAILABLE if is_available else ClusterAvailability.WORKING
    )
    return _AVAILABILITIES.get(phase, usual)


_AVAILABILITIES = {
    **dict.fromkeys(EMPTY, ClusterAvailability.PLANNED),
    Phase.REMOVING: ClusterAvailability.LEAVING,
    Phase.REMOVE_FAILED: ClusterAvailability.LEAVING,
    Phase.FAILED: ClusterAvailability.FAILED,
}
"""By the phases in which no cluster is available."""


def _eviction_context(
    placement: Placement,
    clusters: Mapping[str, ClusterAvailability],
    others_available: int = 0,
    others: int = 0,
) -> EvictionContext:
    return EvictionContext(
        PlacementType(placement.placement_type),
        clusters,
        placement.number_of_clusters,
        is_being_deleted=placement.deleting_since is not None,
        is_namespaced=bool(placement.namespace),
        is_held=placement.is_held,
        others_available=others_available,
        others=others,
    )


def strategy_of(run: StagedRun) -> StagedStrategySpec:
    return parse_staged_strategy(run.strategy).spec


def spec_state_of(run: StagedRun) -> RunState:
    return parse_staged_run(run.document).spec.state


def plan_staged_run(
    run: StagedRun, context: RolloutContext, versions: Mapping[str, str]
) -> StagedRunPlan | CannotStart:
    """Return how a run would start now; clusters without a version get an empty one."""
    return initialise(strategy_of(run), placement_facts(context, versions))


def placement_facts(
    context: RolloutContext, versions: Mapping[str, str]
) -> PlacementFacts:
    placement, manifest, policy = (
        context.placement,
        context.manifest,
        context.manifest.spec.policy,
    )
    bindings = [*context.bindings, *context.left_behind]
    unscheduled = [
        binding.cluster_name
        for binding in bindings
        if binding.state == BindingState.UNSCHEDULED
    ]
    selected = {
        binding.cluster_name
        for binding in bindings
        if binding.state != BindingState.UNSCHEDULED
    }
    picked = tuple(
        cluster for cluster in current_fleet().fleet if cluster.name in selected
    )
    # With PickAll the number of clusters follows from the fleet (`rules/lifecycle.md#staged-update-runs`).
    is_pick_all = policy.placement_type is PlacementType.PICK_ALL
    snapshots = PolicySnapshot.objects.filter(placement=placement, is_latest=True)
    return PlacementFacts(
        picked,
        {cluster.name: versions.get(cluster.name, "") for cluster in picked},
        tuple(unscheduled),
        None if is_pick_all else context.state.number_required,
        context.is_staged,
        placement.deleting_since is not None,
        not placement.is_due and not placement.selection_faults,
        str(snapshots.values_list("number", flat=True).get()),
        hash_of({"applyStrategy": manifest.spec.strategy.apply_strategy.to_plain()}),
    )


def staged_run_state(
    run: StagedRun,
    plan: StagedRunPlan,
    context: RolloutContext,
    *,
    others: Iterable[StagedRun] = (),
) -> StagedRunState:
    """Return everything that decides about a staged run; `others` are the other active runs."""
    left_behind = {binding.cluster_name for binding in context.left_behind}
    in_fleet = current_fleet().fleet.positions.keys() - left_behind
    # A cluster in the fleet without a binding of the placement is empty.
    names = [step.name for step in plan.steps if step.name in in_fleet]
    clusters = {name: ClusterState(name, None, phase=Phase.REMOVED) for name in names}
    clusters |= {
        cluster.name: cluster
        for cluster in context.state.clusters
        if cluster.is_in_fleet
    }
    approvals = {
        Approval(approval.stage, ApprovalPoint(approval.side)): approval.approved_at
        for approval in run.approvals.all()
        if approval.approved_at
    }
    return StagedRunState(
        plan,
        spec_state_of(run),
        clusters,
        context.state.at,
        approvals,
        {
            stage: datetime.fromisoformat(text)
            for stage, text in run.skipped_waits.items()
        },
        run.retries,
        plan_staged_run(run, context, {}),
        tuple(
            run_from_plain(other.plan)
            for other in others
            if other.plan and not other.ended_at
        ),
    )


BEHIND, WAITING, CONFIRMED = "behind", "waiting", "confirmed"
"""Values of `Binding.removal_check`."""


def orphans_to_decide() -> QuerySet[WaitingRemoval]:
    """Return the orphans on members that wait for a person; callable in `across_hubs` too."""
    return WaitingRemoval.objects.filter(
        Exists(
            MemberCluster.objects.filter(
                hub=OuterRef("hub"), name=OuterRef("cluster_name")
            )
        ),
        confirmed_at=None,
    )


def prunes_to_decide() -> QuerySet[Binding]:
    """Return the bindings whose apply waits, as their cluster has a newer version; as `orphans_to_decide`."""
    return Binding.objects.filter(removal_check=WAITING, phase=Phase.FAILED)
