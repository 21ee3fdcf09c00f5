"""Deciding every stored decision again, once a day: what it stores must give what it says.

The source is check 4 of section 6.1 of the console's design.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter

from django.db import transaction
from django.db.models import F, Q, QuerySet

from fleetui.events import Happening, record
from placements.models import DecisionRecord
from placements.operations.asking import ask
from placements.queries.records import fault_of, of_another_engine
from placements.scheduling.version import ENGINE_VERSION

EVERY = timedelta(hours=24)
PIECE = 1.0
DECISION = "Decision"
_BATCH = 20
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Verified:
    """How many records were decided again, and those that gave something else."""

    count: int
    faulty: tuple[DecisionRecord, ...]


def verification_due(*, now: datetime) -> bool:
    """Tell whether a record was not verified for a day."""
    return _due(now=now).exists()


def verify_due(*, now: datetime) -> int:
    """Decide some records again that are due, for about a second; tell how many."""
    until, done = perf_counter() + PIECE, 0
    while perf_counter() < until:
        found = list(_due(now=now).order_by(F("verified_at").asc(nulls_first=True), "pk")[:_BATCH])
        if not found:
            break
        done += verify(found, now=now).count
    return done


def verify(records: Iterable[DecisionRecord], *, now: datetime) -> Verified:
    """Decide records again, and note whether each gave the same; a new fault leaves an event."""
    count, faulty = 0, []
    for each in records:
        count += 1
        if _note(each, fault_of(each)[:_LONGEST], now=now):
            faulty.append(each)
    return Verified(count, tuple(faulty))


def ask_what_another_engine_decided() -> int:
    """Ask the placements whose latest decision this engine cannot read; tell how many."""
    return ask(of_another_engine(), because=f"engine {ENGINE_VERSION} took over")


def records_to_verify() -> QuerySet[DecisionRecord]:
    """Give what this engine decided; another one's records cannot be decided again."""
    return DecisionRecord.objects.filter(engine=ENGINE_VERSION)


def every_record() -> Iterator[DecisionRecord]:
    """Give what this engine decided, in pieces: SQLite never waits for its turn to write with a read open."""
    rows, last = records_to_verify().select_related("fleet").order_by("pk"), 0
    while piece := list(rows.filter(pk__gt=last)[:_BATCH]):
        yield from piece
        last = piece[-1].pk


def _due(*, now: datetime) -> QuerySet[DecisionRecord]:
    return records_to_verify().filter(Q(verified_at=None) | Q(verified_at__lt=now - EVERY))


@transaction.atomic
def _note(row: DecisionRecord, fault: str, *, now: datetime) -> str:
    """Write the result down; a fault that was not there before is told once."""
    is_new = DecisionRecord.objects.filter(pk=row.pk).exclude(fault=fault).update(fault=fault)
    DecisionRecord.objects.filter(pk=row.pk).update(verified_at=now)
    if is_new:
        verb = "does not replay" if fault else "replays again"
        record(Happening(verb, DECISION, row.decision_id, after={"reason": fault}), by=None, now=now)
    return fault
