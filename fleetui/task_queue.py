"""Enqueue tasks by name after commit, and record the heartbeats of workers.

A message is a hint: due work is in the database, and the sweep finds it if the message is lost.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from fleetui.models import WorkerHeartbeat

log = logging.getLogger(__name__)
_PAUSE = 5.0
"""Seconds without a try after one failed: nobody waits twice for a broker that is away."""
_silent_until = 0.0


def enqueue(task: str, **arguments: Any) -> None:
    """Send a task after the commit of the current transaction; an unavailable broker is ignored."""
    transaction.on_commit(lambda: send_now(task, arguments))


def send_now(task: str, arguments: dict[str, Any]) -> None:
    """Send a task now, unless the broker was unavailable a moment ago."""
    global _silent_until  # noqa: PLW0603 -- one broker per process
    if monotonic() < _silent_until:
        return
    try:
        current_app.send_task(task, kwargs=arguments, ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        _silent_until = monotonic() + _PAUSE
        log.warning("wake-up not sent, the sweep will find it: task=%s error=%s", task, error)


EVERY = timedelta(seconds=5)
SILENT_AFTER = timedelta(seconds=40)
_ONLY = 1


def record_heartbeat(*, now: datetime) -> None:
    """Record a heartbeat; at most one write in five seconds of all workers."""
    if not WorkerHeartbeat.objects.filter(pk=_ONLY, at__gt=now - EVERY).exists():
        WorkerHeartbeat.objects.update_or_create(pk=_ONLY, defaults={"at": now})


def last_beat() -> datetime | None:
    """Return the time of the last heartbeat; None without one."""
    return WorkerHeartbeat.objects.filter(pk=_ONLY).values_list("at", flat=True).first()


def seconds_since(*, now: datetime, waiting: Callable[[], datetime | None]) -> timedelta | None:
    """Return the time without a heartbeat if it is too long and work is due, else None.

    `waiting` returns since when work is due; without any heartbeat the time counts from then.
    """
    last = last_beat()
    if last and now - last <= SILENT_AFTER:
        return None
    since = waiting()
    quiet = now - (last or since) if since else timedelta()
    return quiet if quiet > SILENT_AFTER else None
