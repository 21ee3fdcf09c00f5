"""Holding a watch until something changes, in a bounded number of the threads of a process."""

from datetime import UTC, datetime
from threading import BoundedSemaphore, Event
from time import monotonic

from django.conf import settings

from placements.models import WatchedKind
from placements.services.watches.journal import PERIOD, ObjectChanges, changes_since

RETRY_AFTER = 5
"""Seconds after which a client asks again whose watch was answered at once, since no thread was free."""
_holders = BoundedSemaphore(settings.WATCH_HOLDERS)
_never = Event()


def held_changes(kind: WatchedKind, since: int, *, seconds: float) -> tuple[ObjectChanges, bool]:
    """Return the changes after a version as soon as there are some, at the latest after some seconds.

    The second value is whether the watch was held; it is not where other watches have all threads that they
    may have, so that pages and other requests keep theirs. Raise WatchExpiredError.
    """
    until = monotonic() + seconds
    found = changes_since(kind, since, now=datetime.now(UTC))
    if found.changes or seconds <= 0:
        return found, True
    if not _holders.acquire(blocking=False):
        return found, False
    try:
        while not found.changes and (left := until - monotonic()) > 0:
            _never.wait(min(left, PERIOD.total_seconds()))
            found = changes_since(kind, since, now=datetime.now(UTC))
        return found, True
    finally:
        _holders.release()
