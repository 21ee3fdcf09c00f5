"""Exact searches of requests, large ones included."""

import threading
import time

from django.core.cache import caches

from fleetui.middleware import RequestTooLongError, settle
from placements.engine.exact.model import ExactModel
from placements.engine.exact.record import (
    REQUEST_OPTIONS,
    ExactRecord,
    SearchOptions,
    exact_search,
    is_small,
    model_of,
    record_id,
)
from placements.engine.scheduling.decision import Decision
from placements.services.decisions.exact_process import GRACE_SECONDS, search_in_child

LONGEST_SECONDS = 30
"""The largest limit of a search that a request may set."""
_KEPT_SECONDS = 24 * 3600
_place = threading.BoundedSemaphore(1)


def searched(decision: Decision, options: SearchOptions = REQUEST_OPTIONS, *, user: object) -> ExactRecord:
    """Search at the cost of a user: a large problem in a child process, one at a time in this process.

    A record to which a repetition adds nothing is kept. Raise RequestTooLongError where another search
    does not end in time.
    """
    model = model_of(decision)
    if not isinstance(model, ExactModel) or is_small(model):
        return exact_search(decision, options)
    key = record_id(decision.id, options)
    kept: ExactRecord | None = caches["default"].get(key)
    if kept is not None:
        return kept
    if not _place.acquire(timeout=GRACE_SECONDS):
        raise RequestTooLongError(GRACE_SECONDS)
    started = time.monotonic()
    try:
        record = search_in_child(decision, options)
    finally:
        _place.release()
        settle(user, deposit=0, used=time.monotonic() - started)
    if record.is_final:
        caches["default"].set(key, record, _KEPT_SECONDS)
    return record
