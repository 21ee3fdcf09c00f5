"""Daily verification of stored decisions by replay, and periodic refresh of stale picks and headroom."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter

from django.db import transaction
from django.db.models import F, Q, QuerySet, Subquery

from clusters.models import FleetState
from clusters.queries import current_fleet
from fleetui.audit import (
    record_event,
)
from fleetui.hub_scope import LOCAL_HUB
from fleetui.prepared import PreparedQuery
from placements.engine.exact.moves import can_balance
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.reason import ReasonCode
from placements.explain.vocabulary import reason_sentence
from placements.models import DecisionRecord, Placement, StalenessCheck, StalePick
from placements.services.decisions.records import fault_of, of_another_engine
from placements.services.fleet.queries import headroom_of
from placements.services.results import kept
from placements.services.snapshots import cycles_of
from placements.services.workqueue import enqueue_scheduling

EVERY = timedelta(hours=24)
PIECE = 1.0
DECISION = "Decision"
_BATCH = 20
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Verified:
    """How many records were decided again, and those with a different result."""

    count: int
    faulty: tuple[DecisionRecord, ...]


def verification_due(*, now: datetime) -> bool:
    return _due(now=now).exists()


def verify_due(*, now: datetime) -> int:
    """Verify due records for about a second; return how many."""
    until, done = perf_counter() + PIECE, 0
    while perf_counter() < until:
        records = list(
            _due(now=now).order_by(F("verified_at").asc(nulls_first=True), "pk")[
                :_BATCH
            ]
        )
        if not records:
            break
        done += verify(records, now=now).count
    return done


def verify(records: Iterable[DecisionRecord], *, now: datetime) -> Verified:
    """Verify records and save the results; a new difference is recorded as an event."""
    count, faulty = 0, []
    for record in records:
        count += 1
        fault = fault_of(record)[:_LONGEST]
        with transaction.atomic():
            same = DecisionRecord.objects.filter(pk=record.pk)
            is_new = same.exclude(fault=fault).update(fault=fault)
            same.update(verified_at=now)
            if is_new:
                verb = "does not replay" if fault else "replays again"
                record_event(
                    verb,
                    DECISION,
                    record.decision_id,
                    after={"reason": fault},
                    is_warning=bool(fault),
                    by=None,
                    now=now,
                )
        if fault:
            faulty.append(record)
    return Verified(count, tuple(faulty))


def reschedule_unreadable_decisions() -> int:
    """Enqueue the placements whose latest decision this engine cannot read; return how many."""
    return enqueue_scheduling(
        of_another_engine(), trigger=f"engine {ENGINE_VERSION} took over"
    )


def records_to_verify() -> QuerySet[DecisionRecord]:
    """Return the records of this engine; those of another engine cannot be replayed."""
    return DecisionRecord.objects.filter(engine=ENGINE_VERSION)


def every_record() -> Iterator[DecisionRecord]:
    rows, last = records_to_verify().select_related("fleet").order_by("pk"), 0
    while piece := list(rows.filter(pk__gt=last)[:_BATCH]):
        yield from piece
        last = piece[-1].pk


def _due(*, now: datetime) -> QuerySet[DecisionRecord]:
    return records_to_verify().filter(
        Q(verified_at=None) | Q(verified_at__lt=now - EVERY)
    )


STALENESS_EVERY = timedelta(seconds=30)
"""Minimum time between two checks of a placement, unless it has a new decision."""
STALENESS_PIECE = 1.0
_WITHOUT_SCORES = {ReasonCode.OUTRANKED: "Other clusters rank before it"}
"""Sentences in place of those with scores, which change with each reading of a property."""
_STALENESS_BATCH = 5


def freshness_due(*, now: datetime) -> bool:
    return bool(_first_stale.rows(last=now - STALENESS_EVERY))


def refresh_staleness(*, now: datetime) -> int:
    """Refresh some placements with a new decision or a changed fleet; return how many."""
    until, done = perf_counter() + STALENESS_PIECE, 0
    while perf_counter() < until:
        view = current_fleet()
        due = _staleness_due(view.version, view.readings, last=now - STALENESS_EVERY)
        placements = list(due.order_by("pk")[:_STALENESS_BATCH])
        if not placements:
            break
        for placement, cycle in cycles_of(placements, view.fleet):
            headroom = headroom_of(cycle)
            has_better_set = can_balance(cycle) if headroom.exceeded else None
            values = {
                "fleet_version": view.version,
                "readings": view.readings,
                "decisions_made": placement.decisions_made,
                "checked_at": now,
                "headroom": headroom.least,
                "skews": [list(skew) for skew in headroom.skews],
                "exceeded": [
                    list(limit._replace(has_better_set=has_better_set))
                    for limit in headroom.exceeded
                ],
            }
            with kept([placement.pk]) as there:
                if not there:
                    continue
                row, _ = StalenessCheck.objects.update_or_create(
                    placement=placement, defaults=values
                )
                row.stale.all().delete()
                picks = [
                    StalePick(
                        staleness_check=row,
                        cluster_name=name,
                        reason=_WITHOUT_SCORES.get(reason.code)
                        or reason_sentence(reason),
                    )
                    for name, reason in headroom.stale.items()
                ]
                StalePick.objects.bulk_create(picks, batch_size=500)
        done += len(placements)
    return done


def _staleness_due(
    version: int | Subquery, readings: int | Subquery, *, last: datetime
) -> QuerySet[Placement]:
    is_new = Q(staleness_check=None) | ~Q(
        staleness_check__decisions_made=F("decisions_made")
    )
    has_moved = ~Q(staleness_check__fleet_version=version) | (
        ~Q(property_names_read=[]) & ~Q(staleness_check__readings=readings)
    )
    was_long_ago = Q(staleness_check__checked_at__lte=last)
    # A live hub has placed something before its first decision is judged here.
    is_mirrored = ~Q(hub=LOCAL_HUB) & Q(policy_snapshots__is_latest=True)
    return Placement.objects.filter(Q(decisions_made__gt=0) | is_mirrored).filter(
        is_new | has_moved & was_long_ago, deleting_since=None, selection_faults=[]
    )


@PreparedQuery
def _first_stale(last: datetime) -> QuerySet[Placement, int]:
    state = FleetState.objects.all()
    version, readings = (
        Subquery(state.values(name)[:1]) for name in ("version", "readings")
    )
    return _staleness_due(version, readings, last=last).values_list("pk", flat=True)[:1]
