"""Wake a worker after commit, by the name of its task.

A wake-up is a hint: what is due stands in the database, and the sweep finds it when the hint is lost.
"""

import logging
from time import monotonic
from typing import Any

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)
_PAUSE = 5.0
"""Seconds without a try after one failed: nobody waits twice for a broker that is away."""
_silent_until = 0.0


def wake(task: str, **arguments: Any) -> None:
    """Send a task once the current transaction has been committed; a broker that is away does no harm."""
    transaction.on_commit(lambda: send(task, arguments))


def send(task: str, arguments: dict[str, Any]) -> None:
    """Send a task now, unless the broker was away a moment ago."""
    global _silent_until  # noqa: PLW0603 -- one broker per process
    if monotonic() < _silent_until:
        return
    try:
        current_app.send_task(task, kwargs=arguments, ignore_result=True, retry=False)
    except (OperationalError, OSError) as error:
        _silent_until = monotonic() + _PAUSE
        log.warning("wake-up not sent, the sweep will find it: task=%s error=%s", task, error)
