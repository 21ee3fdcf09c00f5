"""Asking what would happen if clusters went: saved, answered piece by piece, never carried out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import perf_counter

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from clusters.operations.fleet_changes import lock_fleet
from clusters.queries import fleet_now
from fleetui.events import SYSTEM
from fleetui.wake import wake
from placements.explain.what_if_wording import choice_words
from placements.models import (
    Decision,
    DecisionRecord,
    FleetRecord,
    HypotheticalDecision,
    Placement,
    PolicySnapshot,
    Scenario,
)
from placements.queries.records import fleet_of, fleet_record_of, stored_decision, stored_fleet
from placements.queries.what_if import (
    RANKS,
    Supposed,
    Variant,
    asked_placements,
    chosen_clusters,
    fleet_under,
    note_on,
    suppose,
)
from placements.scheduling.reads import labels_read, properties_read
from placements.snapshots import cycles_of

WHAT_IF = "placements.tasks.what_if"
LEASE = timedelta(seconds=30)
"""How long a killed worker keeps others waiting."""
AT_ONCE = 0.2
"""Seconds that whoever asks may wait; what takes longer goes on in a worker."""
SMALL_FLEET = 500
PIECE = 1.0
KEPT = 100
"""How many scenarios are kept; the oldest go, with what only they cite."""
_BATCH = 10
_SHOWN = 20


def ask_what_if(*, names: Sequence[str], labels: Sequence[str], by: User | None, now: datetime) -> Scenario:
    """Save the question and begin to answer it: at once where that takes no time, else in a worker.

    Raises Faults.
    """
    chosen = chosen_clusters(names, labels)
    row = Scenario.objects.create(
        clusters=list(chosen),
        chosen_by=choice_words(sorted(set(names)), labels, len(chosen)),
        created_at=now,
        created_by=by.get_username() if by else SYSTEM,
        placements_count=asked_placements().count(),
        work_at=now,
    )
    _prune()
    if len(fleet_now().fleet) <= SMALL_FLEET and _claimed(row, now=now):
        _go_on(row, now=now, seconds=AT_ONCE)
    if not row.is_answered:
        wake(WHAT_IF)
    return row


def answer_due(*, now: datetime) -> int:
    """Go on with the oldest scenario that is due and that no other worker has; tell how many that were."""
    due = Scenario.objects.filter(work_at__lte=now).order_by("work_at", "pk").first()
    if due is None or not _claimed(due, now=now):
        return 0
    _go_on(due, now=now, seconds=PIECE)
    return 1


def is_due(*, now: datetime) -> bool:
    """Tell whether a scenario waits for a worker."""
    return Scenario.objects.filter(work_at__lte=now).exists()


def _claimed(row: Scenario, *, now: datetime) -> bool:
    """Take a scenario on by a conditional update."""
    free = Scenario.objects.filter(pk=row.pk, work_at__lte=now)
    return bool(free.update(work_at=now + LEASE))


def _go_on(row: Scenario, *, now: datetime, seconds: float) -> None:
    """Ask placements until the time is over or all were asked; the first look freezes the fleets."""
    until = perf_counter() + seconds
    row.refresh_from_db()
    fleets = _frozen(row)
    while left := _next(row):
        _answer(row, left, fleets, now=now)
        if perf_counter() > until:
            break
    row.work_at = now if left and _next(row) else None
    row.left_out = Placement.objects.count() - asked_placements().count()
    row.save(update_fields=["work_at", "left_out"])


def _frozen(row: Scenario) -> dict[str, FleetRecord]:
    """Give the two fleets, by variant; stored by the first who asks."""
    if row.without is None or row.cordoned is None:
        view = fleet_now()
        with transaction.atomic():
            row.without = stored_fleet(fleet_under(view.fleet, row.clusters, Variant.LEAVE))
            row.cordoned = stored_fleet(fleet_under(view.fleet, row.clusters, Variant.CORDON))
            row.fleet_version = view.version
            row.save(update_fields=["without", "cordoned", "fleet_version"])
    return {Variant.LEAVE: row.without, Variant.CORDON: row.cordoned}


def _next(row: Scenario) -> list[Placement]:
    asked = HypotheticalDecision.objects.filter(scenario=row, variant=Variant.CORDON)
    rows = asked_placements().exclude(name__in=asked.values("placement_name"))
    return list(rows.order_by("name")[:_BATCH])


def _answer(
    row: Scenario, placements: Sequence[Placement], fleets: Mapping[str, FleetRecord], *, now: datetime
) -> None:
    """Ask a few placements under both variants, and write down what they would do."""
    without, cordoned = (fleet_of(fleets[variant].pk) for variant in (Variant.LEAVE, Variant.CORDON))
    numbers = _policy_numbers(placements)
    for placement, cycle in cycles_of(placements, without):
        was_fulfilled, started = placement.is_fulfilled, perf_counter()
        other = replace(cycle, fleet=cordoned)
        leave = suppose(cycle, row.clusters, Variant.LEAVE, was_fulfilled=was_fulfilled)
        cordon = suppose(other, row.clusters, Variant.CORDON, was_fulfilled=was_fulfilled)
        took = (perf_counter() - started) * 1000 / len(Variant)
        asked = _Asked(row, placement, numbers[placement.pk], took, note_on(leave, cordon, row.clusters), now)
        with transaction.atomic():
            _write(asked, leave, Variant.LEAVE, fleets[Variant.LEAVE])
            _write(asked, cordon, Variant.CORDON, fleets[Variant.CORDON])


@dataclass(frozen=True, slots=True)
class _Asked:
    """What both answers of a placement share."""

    scenario: Scenario
    placement: Placement
    policy_number: int
    milliseconds: float
    note: str
    now: datetime


def _policy_numbers(placements: Iterable[Placement]) -> dict[int, int]:
    latest = PolicySnapshot.objects.filter(placement__in=list(placements), is_latest=True)
    return dict(latest.values_list("placement_id", "number"))


def _write(asked: _Asked, found: Supposed, variant: str, fleet: FleetRecord) -> None:
    cycle = found.decision.cycle
    digest = cycle.fleet.digest(labels_read(cycle), properties_read(cycle))
    record = stored_decision(found.decision, fleet, now=asked.now)
    joins = found.joins[:_SHOWN]
    values = {
        "placement": asked.placement,
        "record": record,
        "policy_number": asked.policy_number,
        "fleet_digest": digest,
        "milliseconds": asked.milliseconds,
        "fate": found.fate,
        "rank": RANKS[found.fate],
        "is_fulfilled": found.decision.is_fulfilled,
        "wanted": asked.placement.number_of_clusters,
        "placed_before": found.placed_before,
        "placed_after": found.placed_after,
        "joins_count": len(found.joins),
        "leaves_count": len(found.leaves),
        "joins": [one.cluster for one in joins],
        "scores": [[one.topology_spread_score, one.affinity_score] for one in joins],
        "leaves": list(found.leaves[:_SHOWN]),
        "why": found.why,
        "note": asked.note,
    }
    HypotheticalDecision.objects.update_or_create(
        scenario=asked.scenario, variant=variant, placement_name=asked.placement.name, defaults=values
    )


def _prune() -> None:
    """Let the oldest scenarios go, with the records and fleets that nothing else cites.

    The fleet as it is stays: who decides on it keeps its key, whether or not a record cites it yet.
    """
    newest = Scenario.objects.order_by("-pk").values_list("pk", flat=True)[:KEPT]
    surplus = Scenario.objects.exclude(pk__in=list(newest))
    if not surplus.exists():
        return
    with transaction.atomic():
        lock_fleet()
        doomed = list(surplus)
        outcomes = HypotheticalDecision.objects.filter(scenario__in=doomed)
        records = set(outcomes.values_list("record_id", flat=True))
        fleets = {pk for one in doomed for pk in (one.without_id, one.cordoned_id) if pk is not None}
        fleets.discard(fleet_record_of(fleet_now()).pk)
        surplus.delete()
        _forget_records(records)
        _forget_fleets(fleets)


def _forget_records(keys: set[int]) -> None:
    kept = set(Decision.objects.filter(record__in=keys).values_list("record_id", flat=True))
    kept |= set(HypotheticalDecision.objects.filter(record__in=keys).values_list("record_id", flat=True))
    DecisionRecord.objects.filter(pk__in=keys - kept).delete()


def _forget_fleets(keys: set[int]) -> None:
    kept = set(DecisionRecord.objects.filter(fleet__in=keys).values_list("fleet_id", flat=True))
    for cited in Scenario.objects.filter(Q(without__in=keys) | Q(cordoned__in=keys)):
        kept |= {pk for pk in (cited.without_id, cited.cordoned_id) if pk is not None}
    FleetRecord.objects.filter(pk__in=keys - kept).delete()
