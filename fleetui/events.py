"""Writing events; every operation that changes something does, in its own transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from fleetui.models import Event

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Happening:
    """What an operation has to say about one object."""

    verb: str
    kind: str
    name: str
    revision: int | None = None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def record(happening: Happening, *, by: User | None, now: datetime) -> None:
    """Write down what happened to one object; without a user it was the console itself."""
    record_all([happening], by=by, now=now)


def record_all(happenings: Iterable[Happening], *, by: User | None, now: datetime) -> None:
    """Write down what happened to many objects at once."""
    actor_name = by.get_username() if by else SYSTEM
    Event.objects.bulk_create(
        Event(
            at=now,
            actor=by,
            actor_name=actor_name,
            verb=one.verb,
            kind=one.kind,
            name=one.name,
            revision=one.revision,
            before=one.before,
            after=one.after,
        )
        for one in happenings
    )


def events_since(kind: str, name: str, revision: int) -> list[Event]:
    """Give what happened to an object after one of its revisions, oldest first."""
    later = Event.objects.filter(kind=kind, name=name, revision__gt=revision)
    return list(later.order_by("id")[:20])
