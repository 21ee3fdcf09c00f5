"""The audit log: every operation that changes something writes an event, in its own transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce

from fleetui.encryption import without_values
from fleetui.models import Event

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """What an operation did with one object, for the audit log; `is_warning`: it is of the type Warning."""

    verb: str
    kind: str
    name: str
    revision: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    is_warning: bool = False


def actor_name(by: User | None) -> str:
    """Return the name to record for an actor; without a user it is the console."""
    return by.get_username() if by else SYSTEM


def actor_words(by: User | None) -> str:
    """Return who did something, to follow what: " by ada"; empty for the console itself."""
    return f" by {by.get_username()}" if by else ""


def record(event: AuditEvent, *, by: User | None, now: datetime) -> None:
    record_all([event], by=by, now=now)


def record_event(
    verb: str,
    kind: str,
    name: str,
    revision: int | None = None,
    *,
    by: User | None,
    now: datetime,
    **facts: Any,
) -> None:
    """Record what an operation did with one object; `facts` are the other fields of an AuditEvent."""
    record(AuditEvent(verb, kind, name, revision, **facts), by=by, now=now)


def record_all(events: Iterable[AuditEvent], *, by: User | None, now: datetime) -> None:
    name = actor_name(by)
    Event.objects.bulk_create(_row(event, now, name, by) for event in events)


def record_of_others(
    events: Iterable[tuple[AuditEvent, str]], *, now: datetime
) -> None:
    """Write events of actors that are no users of this console, each with the name of the actor."""
    Event.objects.bulk_create(_row(event, now, name) for event, name in events)


def _row(one: AuditEvent, now: datetime, name: str, by: User | None = None) -> Event:
    facts = {name: without_values(getattr(one, name)) for name in AuditEvent.__slots__}
    return Event(at=now, actor=by, actor_name=name, **facts)


def events_of_life(kind: str, name: str) -> QuerySet[Event]:
    """Return the events of an object since its creation: an earlier one may have had its name; unordered."""
    created = Event.objects.filter(kind=kind, name=name, verb="created").order_by("-id")
    first = Coalesce(Subquery(created.values("pk")[:1]), 0)
    return Event.objects.filter(kind=kind, name=name, pk__gte=first)


def events_since(kind: str, name: str, revision: int) -> list[Event]:
    """Return the first 20 events of an object after one of its revisions, oldest first."""
    return list(
        Event.objects.filter(kind=kind, name=name, revision__gt=revision).order_by(
            "id"
        )[:20]
    )
