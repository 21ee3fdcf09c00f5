"""Scheduling cycles: claiming what is due, running the cycle, writing what it decided."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic, perf_counter
from typing import Any
from uuid import uuid4

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.queries import current_fleet
from fleetui.audit import AuditEvent, record
from fleetui.bulk import batched, claim_batch
from fleetui.errors import FleetError
from fleetui.task_queue import enqueue
from placements import models
from placements.engine.rollout.state import EMPTY, Phase
from placements.engine.scheduling.decision import (
    ENGINE_VERSION,
    CycleKind,
    Decision,
    fleet_digest,
)
from placements.engine.scheduling.fleet_change import changed_clusters, schedule_changed
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import condition_of
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import Binding
from placements.services.assertions import recheck
from placements.services.decisions.records import fleet_record_of, stored_decision
from placements.services.placements import (
    check_decision_keeps_clusters,
    reschedules_when_fulfilled,
    scheduled_columns,
)
from placements.services.resources.snapshots import PlacementChanged, refresh_resources
from placements.services.results import PLACEMENT
from placements.services.rollouts.controller import finish_deletion
from placements.services.snapshots import CycleInputs, load_cycle_inputs
from placements.services.workqueue import RUN_CLUSTER_CALLS, enqueue_rollout

LEASE = timedelta(seconds=10)
"""How long a killed worker delays others; a slow one does no harm, as only one decision is written."""
BATCH = 20
RERUNS = 3
_NAMES_STORED = 5
_CLUSTERS_HELD = 500_000
"""The number of verdicts and bindings of PickAll placements in the cache of a process, at most 100 MB."""
_lock = Lock()
_pick_all: OrderedDict[int, Decision] = OrderedDict()
_PICK_FIELDS = [
    "state",
    "policy_snapshot",
    "decision",
    "topology_spread_score",
    "affinity_score",
]


class FleetChanged(Exception):
    """The fleet changed while the cycle ran; the decision may be another one now."""


class PreviewOutdatedError(FleetError):
    """What was confirmed is not what would be saved and decided now: another user acted meanwhile.

    `is_text`: the draft itself was changed; else the fleet, or what is placed, was.
    """

    problem_type = "stale-edit"

    def __init__(self, *, is_text: bool) -> None:
        super().__init__("the draft changed" if is_text else "the fleet changed")
        self.is_text = is_text


@dataclass(frozen=True)
class CycleResult:
    """A cycle that has run: what it read, what it decided, how long it took."""

    inputs: CycleInputs
    decision: Decision
    milliseconds: float


def schedule_due(*, now: datetime) -> int:
    """Run up to 20 of the cycles that are due and that no other worker has; return how many.

    Each is run even if another one raises; the error is raised at the end, and the placement it belongs to is
    tried again when its lease is over. The leases are renewed between the cycles, and a cycle whose lease
    another worker took meanwhile is left to that one.
    """
    token, started = uuid4().hex, monotonic()
    claimed = claim_due(now=now, token=token)
    renewed_at = now

    def schedule_next(place: int) -> None:
        nonlocal renewed_at
        passed = now + timedelta(seconds=monotonic() - started)
        if passed - renewed_at >= LEASE / 4:
            renewed_at = passed
            rows = models.Placement.objects.filter(
                pk__in=claimed[place:], lease_token=token
            )
            rows.update(lease_expires_at=passed + LEASE)
            if not rows.filter(pk=claimed[place]).exists():
                return
        schedule_placement(claimed[place], now=now)

    with ExitStack() as stack:
        for place in reversed(range(len(claimed))):
            stack.callback(schedule_next, place)
    return len(claimed)


def claim_due(*, now: datetime, token: str = "") -> list[int]:
    """Claim up to 20 due placements that no other worker has, by a conditional update."""
    lease = {"lease_expires_at": now + LEASE, "lease_token": token or uuid4().hex}
    return claim_batch(_due(now), "pk", size=BATCH, **lease)


def is_due(*, now: datetime) -> bool:
    """Return whether a scheduling cycle is due that no worker has claimed."""
    return _due(now).exists()


def _due(now: datetime) -> QuerySet[models.Placement]:
    free = Q(lease_expires_at=None) | Q(lease_expires_at__lt=now)
    return models.Placement.objects.filter(
        free, observed_generation__lt=F("generation")
    )


def schedule_placement(placement_id: int, *, now: datetime) -> models.Decision | None:
    """Run one cycle for a placement and write what it decided; None when there was nothing to write.

    When the fleet changes meanwhile the cycle runs again, at most three times.
    """
    for run in range(1 + RERUNS):
        placement = models.Placement.objects.filter(pk=placement_id).first()
        if placement is None or not placement.is_due:
            return None
        try:
            if placement.deleting_since:
                with transaction.atomic():
                    if not finish_deletion(placement, now=now):
                        _observe_generation(placement, {})
                return None
            is_decided = placement.is_decided
            if not refresh_resources(placement, now=now):
                # It stays as it is until its selectors or the resources change.
                _observe_generation(
                    placement, scheduled_columns(placement, "False", now=now)
                )
                return None
            if is_decided:
                _observe_generation(placement, {})
                return None
            return write_decision(
                run_cycle(placement), now=now, accept_old_fleet=run == RERUNS
            )
        except FleetChanged:
            continue
        except PlacementChanged:
            break
    models.Placement.objects.filter(pk=placement_id).update(
        lease_expires_at=None, lease_token=""
    )
    return None


def schedule_confirmed(
    placement: models.Placement,
    decision_id: str,
    *,
    now: datetime,
    manifest: ClusterResourcePlacement | None = None,
    must_keep_clusters: bool = False,
) -> None:
    """Run the cycle that a change requires, in its transaction, with the steps of a worker.

    `manifest` is that of the placement, where it is parsed already. Raise PreviewOutdatedError when the
    decision is not the one that was previewed, and UnschedulesEverything.
    """
    placement.refresh_from_db()
    if not refresh_resources(placement, now=now, manifest=manifest):
        return
    result = run_cycle(placement)
    if must_keep_clusters:
        check_decision_keeps_clusters(placement.full_name, result.decision)
    if result.decision.id != decision_id:
        raise PreviewOutdatedError(is_text=False)
    try:
        write_decision(result, now=now)
    except FleetChanged as error:
        raise PreviewOutdatedError(is_text=False) from error


def run_cycle(placement: models.Placement) -> CycleResult:
    return decide(load_cycle_inputs(placement, current_fleet()))


def decide(inputs: CycleInputs) -> CycleResult:
    started = perf_counter()
    decision = _decision_of(inputs)
    return CycleResult(inputs, decision, (perf_counter() - started) * 1000)


def _decision_of(inputs: CycleInputs) -> Decision:
    """Decide; a PickAll placement from the clusters that changed since this process last decided it."""
    key, cycle, decision = inputs.placement.pk, inputs.cycle, None
    former = _pick_all.get(key)
    if former is not None:
        changed = changed_clusters(former.cycle.fleet, cycle.fleet)
        decision = schedule_changed(former, cycle, changed)
    if decision is None:
        decision = schedule(cycle)
    if decision.kind is CycleKind.PICK_ALL:
        with _lock:
            _pick_all[key] = decision
            _pick_all.move_to_end(key)
            while (
                len(_pick_all) * len(cycle.fleet) > _CLUSTERS_HELD
                and len(_pick_all) > 1
            ):
                _pick_all.popitem(last=False)
    return decision


def write_decision(
    result: CycleResult, *, now: datetime, accept_old_fleet: bool = False
) -> models.Decision | None:
    """Write a decision and the bindings that it changes, unless fleet or placement changed meanwhile.

    A cycle that repeats the one before and changes nothing leaves no row. Raise FleetChanged,
    PlacementChanged.
    """
    fleet_record = fleet_record_of(result.inputs.view)
    with transaction.atomic():
        _check_fleet_unchanged(result, settle=accept_old_fleet)
        placement, decision = result.inputs.placement, result.decision
        digest = fleet_digest(decision.cycle)
        condition = condition_of(decision)
        status = condition["status"] if condition else "Unknown"
        columns: dict[str, Any] = scheduled_columns(placement, status, now=now)
        if _is_repetition(result, digest):
            _observe_generation(placement, columns)
            return None
        reschedules = reschedules_when_fulfilled(placement) or not decision.is_fulfilled
        columns |= {
            "decisions_made": placement.decisions_made + 1,
            "is_fulfilled": decision.is_fulfilled,
            "reschedules_on_fleet_change": reschedules,
            "placed_count": sum(
                binding.is_active for binding in decision.bindings_after
            ),
        }
        _observe_generation(placement, columns)

        row = _create_decision(result, digest, fleet_record, now=now)
        _write_bindings(result, row, now=now)
        enqueue_rollout([placement.pk])
        if decision.picked_names or decision.unscheduled:
            recheck(placement.full_name)
        facts = {
            "decision": row.record.decision_id,
            "picked": row.picked_count,
            "kept": row.kept_count,
            "unscheduled": row.unscheduled_count,
            "evicted": row.leaves_count - row.unscheduled_count,
            "fulfilled": row.is_fulfilled,
        }
        record(
            AuditEvent("decided", PLACEMENT, row.placement_name, after=facts),
            by=None,
            now=now,
        )
    return row


def _check_fleet_unchanged(result: CycleResult, *, settle: bool) -> None:
    """Raise FleetChanged; with `settle` only if a picked cluster left the fleet or lost its eligibility."""
    state, view = lock_fleet(), result.inputs.view
    has_changed = state.version != view.version
    if result.inputs.placement.property_names_read:
        has_changed = has_changed or state.readings != view.readings
    if not has_changed:
        return
    names, eligible = result.decision.picked_names, 0
    if settle:
        for part in batched(names):
            eligible += MemberCluster.objects.filter(name__in=part, verdict="").count()
    if not settle or eligible < len(names):
        raise FleetChanged


def _is_repetition(result: CycleResult, digest: str) -> bool:
    """Return whether the cycle changes nothing and read the same as the latest one that was written."""
    decision, inputs = result.decision, result.inputs
    if decision.picked_names or decision.unscheduled:
        return False
    decisions = models.Decision.objects.filter(
        placement=inputs.placement
    ).select_related("record")
    latest = decisions.defer("record__content").order_by("-number").first()
    return latest is not None and (
        latest.record.engine,
        latest.fleet_digest,
        latest.policy_number,
        latest.wanted,
        latest.is_fulfilled,
        latest.picked_count + latest.kept_count,
    ) == (
        ENGINE_VERSION,
        digest,
        inputs.snapshot.number,
        inputs.placement.number_of_clusters,
        decision.is_fulfilled,
        len(decision.kept),
    )


def _observe_generation(placement: models.Placement, columns: dict[str, Any]) -> None:
    """Write that the generation was acted on; raise PlacementChanged if another worker was quicker."""
    unchanged = models.Placement.objects.filter(
        pk=placement.pk,
        revision=placement.revision,
        observed_generation=placement.observed_generation,
    )
    if not unchanged.update(
        observed_generation=placement.generation,
        lease_expires_at=None,
        lease_token="",
        **columns,
    ):
        raise PlacementChanged


def _create_decision(
    result: CycleResult, digest: str, fleet_record: models.FleetRecord, *, now: datetime
) -> models.Decision:
    inputs, decision, placement = (
        result.inputs,
        result.decision,
        result.inputs.placement,
    )
    was_placed = {
        row.cluster_name
        for row in inputs.bindings
        if row.state != BindingState.UNSCHEDULED
    }
    joins = [name for name in decision.picked_names if name not in was_placed]
    leaves = [*decision.unscheduled, *_evicted_before(placement, joins)]
    return models.Decision.objects.create(
        placement=placement,
        placement_name=placement.full_name,
        number=placement.decisions_made + 1,
        record=stored_decision(decision, fleet_record, now=now),
        policy_number=inputs.snapshot.number,
        fleet_digest=digest,
        wanted=placement.number_of_clusters,
        kind=decision.kind,
        is_fulfilled=decision.is_fulfilled,
        picked_count=len(decision.picked_names),
        kept_count=len(decision.kept),
        unscheduled_count=len(decision.unscheduled),
        joins_count=len(joins),
        joins=joins[:_NAMES_STORED],
        leaves_count=len(leaves),
        leaves=leaves[:_NAMES_STORED],
        milliseconds=result.milliseconds,
        trigger=placement.trigger,
        triggered_by=placement.triggered_by,
        created_at=now,
    )


def _evicted_before(placement: models.Placement, joins: Sequence[str]) -> list[str]:
    """Return the clusters evicted since the last decision, without those that are picked again.

    An eviction ends the binding, so that the cycle after it unschedules nothing.
    """
    previous = models.Decision.objects.filter(
        placement=placement, number=placement.decisions_made
    )
    for since, leaves in previous.values_list("created_at", "leaves"):
        rows = models.Eviction.objects.filter(
            placement=placement, outcome=models.Eviction.Outcome.EXECUTED
        )
        names = (
            rows.filter(at__gte=since)
            .order_by("cluster_name")
            .values_list("cluster_name", flat=True)
        )
        return [
            name
            for name in dict.fromkeys(names)
            if name not in leaves and name not in joins
        ]
    return []


def _write_bindings(
    result: CycleResult, row: models.Decision, *, now: datetime
) -> None:
    """Write what changed, in bulk.

    A rollout may have changed bindings since the cycle loaded its inputs, so they are read again, locked;
    one that was removed meanwhile and is picked is created.
    """
    inputs, decision = result.inputs, result.decision
    names = {*decision.unscheduled, *decision.picked_names}
    pks = [binding.pk for binding in inputs.bindings if binding.cluster_name in names]
    current: dict[str, models.Binding] = {}
    for part in batched(pks):
        rows = models.Binding.objects.select_for_update().filter(pk__in=part)
        current |= {one.cluster_name: one for one in rows.order_by("pk")}
    ended = {
        binding.pk
        for binding in current.values()
        if binding.state == BindingState.UNSCHEDULED
    }
    bindings = [current[name] for name in decision.unscheduled if name in current]
    # Where nothing is, nothing is to be removed: no rollout would ever end such a binding.
    empty = [
        one.pk
        for one in bindings
        if one.state == BindingState.SCHEDULED or one.phase in EMPTY
    ]
    bound = [
        one.pk
        for one in bindings
        if one.state == BindingState.BOUND and one.phase not in EMPTY
    ]
    if empty:
        models.Binding.objects.filter(pk__in=empty).delete()
    if bound:
        models.Binding.objects.filter(pk__in=bound).update(
            state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND
        )

    new, again = [], []
    for picked in decision.picked:
        binding = current.get(picked.cluster)
        if binding is None:
            binding = models.Binding(
                placement=inputs.placement,
                cluster_name=picked.cluster,
                state=BindingState.SCHEDULED,
                picked_at=now,
            )
            new.append(binding)
        else:
            again.append(binding)
        if binding.state == BindingState.UNSCHEDULED:
            binding.state = binding.previous_state
        binding.policy_snapshot, binding.decision = inputs.snapshot, row
        score = picked.topology_spread_score
        binding.topology_spread_score = (
            list(score) if isinstance(score, tuple) else score
        )
        binding.affinity_score = picked.affinity_score
    models.Binding.objects.bulk_create(new, batch_size=500)
    if new:
        set_members(
            models.Binding.objects.filter(placement=inputs.placement, member_id=None)
        )
    models.Binding.objects.bulk_update(again, _PICK_FIELDS, batch_size=500)
    recheck_rejoined([binding for binding in again if binding.pk in ended], now=now)


def set_members(bindings: QuerySet[Binding]) -> None:
    """Record of which member clusters these bindings are; a cluster that rejoins is another one."""
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name")).values("pk")
    bindings.update(member_id=Subquery(members[:1]))


def recheck_rejoined(bindings: Collection[Binding], *, now: datetime) -> None:
    """Observe selected clusters again that rejoined since they were last selected.

    They may have been cleared meanwhile; until the next observation they count as not ready.
    """
    names = [one.cluster_name for one in bindings]
    members = dict(
        MemberCluster.objects.filter(name__in=names).values_list("name", "pk")
    )
    rejoined = [
        one
        for one in bindings
        if members.get(one.cluster_name) not in (None, one.member_id)
    ]
    if not rejoined:
        return
    rows = Binding.objects.filter(pk__in=[one.pk for one in rejoined])
    set_members(rows)
    if any(one.phase == Phase.AVAILABLE for one in rejoined):
        columns = {
            "phase": Phase.APPLIED,
            "phase_changed_at": now,
            "untrackable_since": None,
            "next_call_at": now,
        }
        rows.filter(phase=Phase.AVAILABLE).update(**columns)
        enqueue(RUN_CLUSTER_CALLS)
