"""Scheduling cycles: who is due, deciding, and writing what changed (`design/architecture.md`, flow)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from uuid import uuid4

from django.db import transaction
from django.db.models import F, Q

from clusters.models import MemberCluster
from clusters.operations.fleet_changes import lock_fleet
from clusters.queries import fleet_now
from fleetui.events import Happening, record
from placements import models
from placements.explain.hub_status import condition_of
from placements.operations.placements import PLACEMENT, always_looks, finish_deletion, scheduled_columns
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.rejoining import doubt_rejoined
from placements.operations.snapshotting import PlacementMovedError, refresh_resources
from placements.queries.records import fleet_record_of, stored_decision
from placements.scheduling.bindings import BindingState
from placements.scheduling.decision import Decision, Picked
from placements.scheduling.reads import labels_read, properties_read
from placements.scheduling.scheduler import schedule
from placements.scheduling.version import ENGINE_VERSION
from placements.snapshots import Inputs, take

LEASE = timedelta(seconds=10)
"""How long a killed worker keeps others waiting; a slow one does no harm, as only one answer is written."""
BATCH = 20
RERUNS = 3
_SHOWN = 5


class FleetMovedError(Exception):
    """The fleet changed while the cycle ran; the answer may be another one now."""


def schedule_due(*, now: datetime) -> int:
    """Run up to 20 of the cycles that are due and that no other worker has; tell how many.

    What an error keeps from being begun is free for others at once.
    """
    claimed = claim(now=now)
    left = list(claimed)
    try:
        while left:
            decide(left.pop(0), now=now)
    finally:
        if left:
            _release(left)
    return len(claimed)


def claim(*, now: datetime) -> list[int]:
    """Take on up to 20 due placements that no other worker holds, by a conditional update."""
    token = uuid4().hex
    free = Q(lease_until=None) | Q(lease_until__lt=now)
    due = models.Placement.objects.filter(free, answered__lt=F("asked"))
    ids = list(due.order_by("pk").values_list("pk", flat=True)[:BATCH])
    if not ids:
        return []
    due.filter(pk__in=ids).update(lease_until=now + LEASE, lease_token=token)
    return list(
        models.Placement.objects.filter(lease_token=token).order_by("pk").values_list("pk", flat=True)
    )


def decide(placement_id: int, *, now: datetime) -> models.Decision | None:
    """Run one cycle for a placement and write what it decided; None when there was nothing to write.

    When the fleet changes meanwhile the cycle runs again, at most three times.
    """
    for run in range(1 + RERUNS):
        placement = models.Placement.objects.filter(pk=placement_id).first()
        if placement is None or not placement.is_due:
            return None
        try:
            if placement.deleting_since:
                _finish_deleting(placement)
                return None
            if not refresh_resources(placement, now=now):
                _set_aside(placement, now=now)
                return None
            return write_decision(run_cycle(placement), now=now, settle_for_old_fleet=run == RERUNS)
        except FleetMovedError:
            continue
        except PlacementMovedError:
            break
    _release([placement_id])
    return None


def _finish_deleting(placement: models.Placement) -> None:
    with transaction.atomic():
        if not finish_deletion(placement):
            _answer(placement, {})


def _set_aside(placement: models.Placement, *, now: datetime) -> None:
    """Leave a placement whose selectors are at fault as it is, until it or the resources change."""
    _answer(placement, scheduled_columns(placement, "False", now=now))


def _release(placements: Iterable[int]) -> None:
    models.Placement.objects.filter(pk__in=list(placements)).update(lease_until=None, lease_token="")


@dataclass(frozen=True)
class Cycled:
    """A cycle that has run: what it read, what it decided, how long it took."""

    inputs: Inputs
    decision: Decision
    milliseconds: float


def run_cycle(placement: models.Placement) -> Cycled:
    """Take the inputs of a cycle and decide; nothing is written."""
    inputs = take(placement, fleet_now())
    started = perf_counter()
    decision = schedule(inputs.cycle)
    return Cycled(inputs, decision, (perf_counter() - started) * 1000)


def write_decision(
    cycled: Cycled, *, now: datetime, settle_for_old_fleet: bool = False
) -> models.Decision | None:
    """Write a decision and the bindings that it changes, unless fleet or placement have moved on.

    A cycle that repeats the one before and changes nothing leaves no row. Raises FleetMovedError,
    PlacementMovedError.
    """
    fleet_record = fleet_record_of(cycled.inputs.view)
    with transaction.atomic():
        _refuse_old_fleet(cycled, settle=settle_for_old_fleet)
        placement, decision = cycled.inputs.placement, cycled.decision
        digest = decision.cycle.fleet.digest(labels_read(decision.cycle), properties_read(decision.cycle))
        repeats = _repeats(cycled, digest)
        condition = condition_of(decision)
        said = scheduled_columns(placement, condition.status if condition else "Unknown", now=now)
        _answer(placement, said if repeats else {**said, **_columns(cycled)})
        if repeats:
            return None
        row = _decision_row(cycled, digest, fleet_record, now=now)
        _write_bindings(cycled, row, now=now)
        ask_to_advance([placement.pk])
        record(_happening(row), by=None, now=now)
    return row


def _refuse_old_fleet(cycled: Cycled, *, settle: bool) -> None:
    state, view = lock_fleet(), cycled.inputs.view
    moved = state.version != view.version
    if cycled.inputs.placement.property_names_read:
        moved = moved or state.readings != view.readings
    if moved and not (settle and _all_may_be_picked(cycled.decision.picked_names)):
        raise FleetMovedError


def _all_may_be_picked(names: tuple[str, ...]) -> bool:
    """Tell whether none of the picked clusters left the fleet or lost its eligibility."""
    there = 0
    for start in range(0, len(names), 500):
        there += MemberCluster.objects.filter(name__in=names[start : start + 500], verdict="").count()
    return there == len(names)


def _repeats(cycled: Cycled, digest: str) -> bool:
    """Tell whether the cycle changes nothing and read the same as the latest one that was written."""
    decision, inputs = cycled.decision, cycled.inputs
    if decision.picked_names or decision.unscheduled:
        return False
    made = models.Decision.objects.filter(placement=inputs.placement).select_related("record")
    latest = made.defer("record__content").order_by("-number").first()
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


def _columns(cycled: Cycled) -> dict[str, object]:
    placement, decision = cycled.inputs.placement, cycled.decision
    return {
        "decisions_made": placement.decisions_made + 1,
        "is_fulfilled": decision.is_fulfilled,
        "keeps_looking": always_looks(placement) or not decision.is_fulfilled,
        "placed_count": sum(binding.is_active for binding in decision.bindings_after),
    }


def _answer(placement: models.Placement, columns: dict[str, object]) -> None:
    """Note that what was asked is answered; raise PlacementMovedError if somebody was quicker."""
    mine = models.Placement.objects.filter(
        pk=placement.pk, revision=placement.revision, answered=placement.answered
    )
    if not mine.update(answered=placement.asked, lease_until=None, lease_token="", **columns):
        raise PlacementMovedError


def _decision_row(
    cycled: Cycled, digest: str, fleet_record: models.FleetRecord, *, now: datetime
) -> models.Decision:
    inputs, decision, placement = cycled.inputs, cycled.decision, cycled.inputs.placement
    was_placed = {row.cluster_name for row in inputs.bindings if row.state != BindingState.UNSCHEDULED}
    joins = [name for name in decision.picked_names if name not in was_placed]
    return models.Decision.objects.create(
        placement=placement,
        placement_name=placement.name,
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
        joins=joins[:_SHOWN],
        leaves=list(decision.unscheduled[:_SHOWN]),
        milliseconds=cycled.milliseconds,
        because=placement.asked_because,
        asked_by=placement.asked_by,
        created_at=now,
    )


def _write_bindings(cycled: Cycled, row: models.Decision, *, now: datetime) -> None:
    """Write what changed, in bulk; a binding that was never carried out ends without a trace.

    A rollout may have carried on since the cycle took its inputs: what is written starts from the bindings
    as they are now.
    """
    inputs, decision = cycled.inputs, cycled.decision
    there = _as_they_are({*decision.unscheduled, *decision.picked_names}, inputs)
    ended = {binding.pk for binding in there.values() if binding.state == BindingState.UNSCHEDULED}
    _unschedule([there[name] for name in decision.unscheduled if name in there])
    new, again = [], []
    for picked in decision.picked:
        binding = there.get(picked.cluster)
        if binding is None:
            binding = _new_binding(inputs, picked, now=now)
            new.append(binding)
        else:
            again.append(binding)
        _take_pick(binding, picked, inputs.snapshot, row)
    models.Binding.objects.bulk_create(new, batch_size=500)
    models.Binding.objects.bulk_update(again, _PICK_FIELDS, batch_size=500)
    doubt_rejoined([binding for binding in again if binding.pk in ended], now=now)


def _new_binding(inputs: Inputs, picked: Picked, *, now: datetime) -> models.Binding:
    return models.Binding(
        placement=inputs.placement,
        cluster_name=picked.cluster,
        state=BindingState.SCHEDULED,
        picked_at=now,
    )


def _as_they_are(names: set[str], inputs: Inputs) -> dict[str, models.Binding]:
    """Read the bindings of these clusters again, locked, by cluster name; those that ended are not there."""
    pks = [binding.pk for binding in inputs.bindings if binding.cluster_name in names]
    there: dict[str, models.Binding] = {}
    for start in range(0, len(pks), 500):
        rows = models.Binding.objects.select_for_update().filter(pk__in=pks[start : start + 500])
        there.update((row.cluster_name, row) for row in rows.order_by("pk"))
    return there


_PICK_FIELDS = ["state", "policy_snapshot", "decision", "topology_spread_score", "affinity_score"]


def _take_pick(
    binding: models.Binding, picked: Picked, snapshot: models.PolicySnapshot, row: models.Decision
) -> None:
    """Bind again as it was bound before, under this decision."""
    if binding.state == BindingState.UNSCHEDULED:
        binding.state = binding.previous_state
    binding.policy_snapshot, binding.decision = snapshot, row
    score = picked.topology_spread_score
    binding.topology_spread_score = list(score) if isinstance(score, tuple) else score
    binding.affinity_score = picked.affinity_score


def _unschedule(bindings: Iterable[models.Binding]) -> None:
    for state, pks in _by_state(bindings):
        rows = models.Binding.objects.filter(pk__in=pks)
        if state == BindingState.SCHEDULED:
            rows.delete()
        else:
            rows.update(state=BindingState.UNSCHEDULED, previous_state=state)


def _by_state(bindings: Iterable[models.Binding]) -> Iterator[tuple[str, list[int]]]:
    listed = list(bindings)
    for state in (BindingState.SCHEDULED, BindingState.BOUND):
        pks = [binding.pk for binding in listed if binding.state == state]
        if pks:
            yield state, pks


def _happening(row: models.Decision) -> Happening:
    after = {
        "decision": row.record.decision_id,
        "picked": row.picked_count,
        "kept": row.kept_count,
        "unscheduled": row.unscheduled_count,
        "fulfilled": row.is_fulfilled,
    }
    return Happening("decided", PLACEMENT, row.placement_name, after=after)
