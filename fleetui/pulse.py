"""Whether a worker is there: it says so every few seconds, and pages say since when it has not."""

from collections.abc import Callable
from datetime import datetime, timedelta

from fleetui.models import Pulse

EVERY = timedelta(seconds=5)
SILENT_AFTER = timedelta(seconds=40)
_ONLY = 1


def beat(*, now: datetime) -> None:
    """Note that a worker is there; at most one write in five seconds, whoever does it."""
    if not Pulse.objects.filter(pk=_ONLY, at__gt=now - EVERY).exists():
        Pulse.objects.update_or_create(pk=_ONLY, defaults={"at": now})


def last_beat() -> datetime | None:
    """Give when a worker last answered; None on a hub where none ever has."""
    return Pulse.objects.filter(pk=_ONLY).values_list("at", flat=True).first()


def silence(*, now: datetime, waiting: Callable[[], datetime | None]) -> timedelta | None:
    """Give for how long no worker has answered, once that is longer than it may be and work waits for one.

    `waiting` tells since when work waits; where no worker has ever answered, silence counts from then.
    """
    last = last_beat()
    if last and now - last <= SILENT_AFTER:
        return None
    since = waiting()
    quiet = now - (last or since) if since else timedelta()
    return quiet if quiet > SILENT_AFTER else None
