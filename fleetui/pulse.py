"""Whether a worker is there: it says so every few seconds, and pages say since when it has not."""

from datetime import datetime, timedelta

from fleetui.models import Pulse

EVERY = timedelta(seconds=5)
SILENT_AFTER = timedelta(seconds=40)
_ONLY = 1


def beat(*, now: datetime) -> None:
    """Note that a worker is there; at most one write in five seconds, whoever does it."""
    if not Pulse.objects.filter(pk=_ONLY, at__gt=now - EVERY).exists():
        Pulse.objects.update_or_create(pk=_ONLY, defaults={"at": now})


def silence(*, now: datetime) -> timedelta | None:
    """Give for how long no worker has answered, once that is longer than it may be; None while one does.

    A hub where none has ever answered is new: nobody can tell since when one is missing.
    """
    last = Pulse.objects.filter(pk=_ONLY).values_list("at", flat=True).first()
    return now - last if last and now - last > SILENT_AFTER else None
