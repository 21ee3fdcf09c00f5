"""Conversion of rows to the values that a scheduling cycle reads, and of values back to rows.

The counts of other placements for *Balance* of `ocm` are read by every cycle, but a change of them enqueues
none: in OCM a placement is rescheduled only after a change of its decisions
(`rules/other-schedulers.md#placements-of-open-cluster-management`). So two balanced placements never trigger
each other.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from django.core.cache import caches
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Aggregate, Count, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from clusters.fleet import Fleet, collector_paused
from clusters.hub_objects import OcmObject
from clusters.models import ClusterSetObject
from clusters.queries import FleetSnapshot
from fleetui.apimachinery.model import HUB_SEMANTICS, Semantics
from fleetui.apimachinery.secrets import ObjectKey
from fleetui.bulk import batched
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.engine.envelopes import applied_identities
from placements.engine.ocm_hub import OcmHub, hub_of
from placements.engine.overlaps import Placed, keys_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import at_moment, names_read
from placements.engine.scheduling.profile import profile_of
from placements.manifests.assertions import ASSERTIONS_ANNOTATION
from placements.manifests.binding import BindingState
from placements.manifests.binding import PlacedBinding as BindingValue
from placements.manifests.placement import ClusterResourcePlacement
from placements.manifests.policy import PlacementPolicy, PlacementType, parse_policy
from placements.manifests.strategy import RollingUpdate
from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot

_EVERYWHERE = Q()
_CO_OWNERSHIP = "placement__document__spec__strategy__applyStrategy__allowCoOwnership"


@dataclass
class HubInputs:
    """What cycles read of a hub beside its clusters, each loaded once, and only if a cycle reads it.

    That are the number of placements of each cluster, and the sets of clusters.
    """

    now: datetime | None = None

    def completed(self, cycle: Cycle, namespace: str) -> Cycle:
        """Return the cycle of a placement in a namespace with what its rules read of the hub.

        Counts in the options of the placement override those of the hub.
        """
        profile = profile_of(cycle)
        if not profile.has_hub_objects:
            return cycle
        cycle = at_moment(cycle, self.now or timezone.now())
        if namespace and self._hub.has_sets:
            cycle = self._hub.with_sets(cycle, namespace)
        if not profile.reads_other_placements:
            return cycle
        own = Counter(
            binding.cluster for binding in cycle.bindings if binding.is_active
        )
        positions = cycle.fleet.positions
        others = {
            name: count
            for name, count in (self._placed_counts - own).items()
            if name in positions
        }
        return cycle.with_balance(others) if others else cycle

    @cached_property
    def _hub(self) -> OcmHub:
        rows = ClusterSetObject.objects.values_list(
            "kind", "namespace", "name", "selector"
        )
        return hub_of(OcmObject(*row) for row in rows)

    @cached_property
    def _placed_counts(self) -> Counter[str]:
        rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED).values_list(
            "cluster_name"
        )
        return Counter(dict(rows.annotate(Count("pk")).order_by("cluster_name")))


class BindingInput(NamedTuple):
    """The columns of a binding that a cycle reads; not a model, as there may be thousands."""

    pk: int
    placement_id: int
    cluster_name: str
    state: str
    previous_state: str
    policy_snapshot_id: int
    affinity_score: float | None
    topology_spread_score: Any


@dataclass(frozen=True)
class CycleInputs:
    """All inputs of one scheduling cycle of a placement, at one moment."""

    placement: Placement
    snapshot: PolicySnapshot
    bindings: Sequence[BindingInput]
    view: FleetSnapshot
    cycle: Cycle


def load_cycle_inputs(
    placement: Placement, view: FleetSnapshot, *, now: datetime | None = None
) -> CycleInputs:
    return next(inputs_of([placement], view, now=now))


def inputs_of(
    placements: Collection[Placement],
    view: FleetSnapshot,
    *,
    now: datetime | None = None,
) -> Iterator[CycleInputs]:
    """Yield the inputs of the cycles of these placements, in two queries.

    Two more if some rules read the counts of other placements and the sets of clusters. A placement deleted
    meanwhile is omitted. `now` is by default this moment.
    """
    snapshots = _latest_snapshots(placements)
    bindings = Binding.objects.filter(placement__in=snapshots)
    columns = (*BindingInput._fields[:-1], _SCORE_TEXT)
    rows: dict[int, list[BindingInput]] = {pk: [] for pk in snapshots}
    with collector_paused():
        tuples = list(
            bindings.order_by("placement", "cluster_name").values_list(*columns)
        )
    for *values, text in tuples:
        row = BindingInput._make((*values, _score_from(text)))
        rows[row.placement_id].append(row)
    values = {
        pk: binding_values(rows[pk], policy_snapshot)
        for pk, policy_snapshot in snapshots.items()
    }
    for placement, cycle in _cycles(placements, view.fleet, snapshots, values, now):
        snapshot = snapshots[placement.pk]
        yield CycleInputs(placement, snapshot, rows[placement.pk], view, cycle)


def cycles_of(
    placements: Collection[Placement],
    fleet: Fleet,
    *,
    where: Q = _EVERYWHERE,
) -> Iterator[tuple[Placement, Cycle]]:
    """Return the cycle of each of these placements on a fleet, in two queries.

    Two more if some rules read the counts of other placements and the sets of clusters. A placement deleted
    meanwhile is omitted. `where` is which of the bindings are read: a large placement has thousands.
    """
    snapshots = _latest_snapshots(placements)
    rows = Binding.objects.filter(where, placement__in=snapshots)
    bindings = _bindings_of(rows, {snapshot.pk for snapshot in snapshots.values()})
    return _cycles(placements, fleet, snapshots, bindings)


def _latest_snapshots(placements: Iterable[Placement]) -> dict[int, PolicySnapshot]:
    ids = [placement.pk for placement in placements]
    latest = PolicySnapshot.objects.filter(placement__in=ids, is_latest=True)
    return {snapshot.placement_id: snapshot for snapshot in latest}


def _cycles(
    placements: Iterable[Placement],
    fleet: Fleet,
    snapshots: Mapping[int, PolicySnapshot],
    bindings: Mapping[int, tuple[BindingValue, ...]],
    now: datetime | None = None,
) -> Iterator[tuple[Placement, Cycle]]:
    hub = HubInputs(now)
    for placement in placements:
        if snapshot := snapshots.get(placement.pk):
            cycle = Cycle(
                fleet,
                policy_of(snapshot, placement.number_of_clusters),
                bindings.get(placement.pk, ()),
                Semantics(snapshot.semantics),
                snapshot.options,
                placement.resource_namespace,
            )
            yield placement, hub.completed(cycle, placement.namespace)


def draft_cycle(
    draft: ClusterResourcePlacement, *, saved: Placement | None, fleet: Fleet
) -> Cycle:
    """Return the cycle that would run if the draft were saved over `saved`, or as a new placement."""
    bindings: tuple[BindingValue, ...] = ()
    if saved is not None:
        # A live hub may have none yet, or one that is not understood.
        kept = [
            snapshot for snapshot in saved.policy_snapshots.all() if snapshot.is_latest
        ]
        # A draft that creates a new policy snapshot makes every binding obsolete.
        is_same = bool(kept) and content_hash(draft) == kept[0].content_hash
        rows = Binding.objects.filter(placement=saved)
        current = {kept[0].pk} if is_same else set[int]()
        bindings = _bindings_of(rows, current).get(saved.pk, ())
    cycle = Cycle(
        fleet,
        draft.spec.policy,
        bindings,
        rules_of(draft),
        draft.spread_options,
        draft.resource_namespace,
    )
    return HubInputs().completed(cycle, draft.namespace)


def applied_objects() -> dict[int, Placed]:
    """Return what each placement applies, without where."""
    latest = ResourceSnapshot.objects.filter(
        is_latest=True, placement__deleting_since=None
    )
    columns = (
        "placement_id",
        "placement__full_name",
        _CO_OWNERSHIP,
        "identities",
        "wrapped_identities",
    )
    applied = {}
    for pk, name, is_shared, identities, wrapped in latest.values_list(*columns):
        if keys := keys_of(applied_identities(identities, wrapped)):
            applied[pk] = Placed(name, keys, frozenset(), is_shared is True)
    return applied


def applied_lately() -> dict[int, Placed]:
    """Return the same, a few seconds old: an editor asks with each change."""
    key = f"applied-objects/{current_hub_id()}"
    return caches["process"].get_or_set(key, applied_objects, _APPLIED_SECONDS) or {}


_APPLIED_SECONDS = 5.0


def placed_objects(
    applied: Mapping[int, Placed], *, of: Collection[ObjectKey] | None = None
) -> list[Placed]:
    """Return what is applied with where, of all placements or of those that apply one of these objects.

    One query at most: where no other placement applies them, none.
    """
    clusters: dict[int, set[str]] = {
        pk: set()
        for pk, placed in applied.items()
        if of is None or not placed.objects.isdisjoint(of)
    }
    for part in batched(clusters):
        rows = Binding.objects.filter(placement__in=part).exclude(
            state=BindingState.UNSCHEDULED
        )
        for pk, cluster in rows.values_list("placement_id", "cluster_name"):
            clusters[pk].add(cluster)
    return [
        applied[pk]._replace(clusters=frozenset(names))
        for pk, names in clusters.items()
    ]


def policy_of(snapshot: PolicySnapshot, number: int | None) -> PlacementPolicy:
    text = json.dumps(snapshot.policy_for(number))
    return _policy_from(text, Semantics(snapshot.semantics))


@lru_cache(maxsize=1_000)
def _policy_from(text: str, semantics: Semantics) -> PlacementPolicy:
    """Return a policy, which each cycle of its placement reads; parsing takes ten times as long."""
    return parse_policy(json.loads(text), semantics=semantics)


_SCORE_TEXT = Cast("topology_spread_score", TextField())
"""Most scores are equal, so that few texts are parsed."""


@lru_cache(maxsize=10_000)
def _score_from(text: str | None) -> Any:
    score = json.loads(text or "null")
    return tuple(score) if isinstance(score, list) else score


class JoinedNames(Aggregate):
    """The names of a group of clusters with commas, which no name has."""

    function = "GROUP_CONCAT"
    output_field = TextField()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **more: Any
    ) -> tuple[str, Sequence[Any]]:
        more["template"] = "STRING_AGG(%(expressions)s, ',')"
        return self.as_sql(compiler, connection, **more)


def _bindings_of(
    rows: QuerySet[Binding], current: Collection[int]
) -> dict[int, tuple[BindingValue, ...]]:
    """Return bindings by placement, by cluster name; those of other policy snapshots are obsolete.

    Most of a placement differ in nothing but the cluster, so the database groups them.
    """
    columns = (*BindingInput._fields[3:-1], _SCORE_TEXT)
    grouped = rows.order_by().values_list("placement_id", *columns)
    found: dict[int, list[BindingValue]] = {}
    with collector_paused():
        for pk, state, previous, snapshot, affinity, text, names in grouped.annotate(
            names=JoinedNames("cluster_name")
        ):
            shared = (
                _STATES[state],
                snapshot in current,
                _score_from(text),
                affinity,
                _STATES[previous],
                False,
            )
            alike = zip(names.split(","), *map(repeat, shared), strict=False)
            found.setdefault(pk, []).extend(map(BindingValue._make, alike))
        return {
            pk: tuple(sorted(values, key=itemgetter(0))) for pk, values in found.items()
        }


def binding_values(
    rows: Iterable[BindingInput], latest: PolicySnapshot
) -> tuple[BindingValue, ...]:
    """Return bindings as values; those of another snapshot than the latest are obsolete."""
    return tuple(
        BindingValue(
            row.cluster_name,
            _STATES[row.state],
            is_current=row.policy_snapshot_id == latest.pk,
            topology_spread_score=row.topology_spread_score,
            affinity_score=row.affinity_score,
            previous_state=_STATES[row.previous_state],
        )
        for row in rows
    )


_STATES = {state.value: state for state in BindingState}


def placement_columns(manifest: ClusterResourcePlacement) -> dict[str, Any]:
    """Return the columns that lists filter by, and those with which changes of the fleet are compared."""
    policy = manifest.spec.policy
    cycle = Cycle(Fleet(), policy, (), manifest.semantics, manifest.spread_options)
    keys, names = names_read(cycle)
    is_pick_n = policy.placement_type is PlacementType.PICK_N
    is_fixed = policy.placement_type is PlacementType.PICK_FIXED
    rolling = manifest.spec.strategy.rolling_update or RollingUpdate()
    return {
        "placement_type": policy.placement_type,
        "number_of_clusters": policy.number_of_clusters if is_pick_n else None,
        "named_count": len(policy.cluster_names) if is_fixed else None,
        "strategy_type": manifest.spec.strategy.type,
        "unavailable_period": timedelta(seconds=rolling.unavailable_period_seconds),
        "semantics": manifest.semantics,
        "has_assertions": ASSERTIONS_ANNOTATION in manifest.metadata.annotations,
        "label_keys_read": sorted(keys),
        "property_names_read": sorted(names),
        "revision_history_limit": manifest.spec.revision_history_limit,
        "reschedules_on_fleet_change": True,
    }


def rules_of(manifest: ClusterResourcePlacement) -> Semantics:
    """Return the semantics by which a placement of the hub in scope is scheduled."""
    return manifest.semantics if current_hub_id() == LOCAL_HUB else HUB_SEMANTICS


def content_hash(placement: ClusterResourcePlacement) -> str:
    """Return the hash that a new policy snapshot depends on: without numberOfClusters.

    See `rules/lifecycle.md#snapshots`.
    """
    content = {
        "policy": placement.spec.policy.without_number(),
        "semantics": rules_of(placement),
    }
    return hash_of({**content, "options": placement.spread_options})


def hash_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(
        content, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()
