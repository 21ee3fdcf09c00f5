"""Exact searches of requests: small ones at once, large ones in a child process of a request or a worker."""

import threading
import time

from django.core.cache import caches

from fleetui.errors import UnknownObject
from fleetui.hub_scope import current_hub_id
from fleetui.middleware import RequestTooLongError, settle
from fleetui.task_queue import enqueue
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
from placements.services.decisions.records import recorded

TASK = "placements.tasks.search_exactly"
LONGEST_SECONDS = 30
"""The largest limit of a search that a request may set."""
_KEPT_SECONDS = 24 * 3600
_CUT_SECONDS = 600
_place = threading.BoundedSemaphore(1)


def searched(
    decision: Decision, options: SearchOptions = REQUEST_OPTIONS, *, user: object
) -> ExactRecord:
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


class UnknownSearchError(UnknownObject):
    """No search with this id is requested, or its record is no longer kept."""

    problem_type = "unknown-search"


def request_search(
    decision: Decision, options: SearchOptions, *, user: object
) -> ExactRecord | str:
    """Return the record of a small or known search; else leave it to a worker and return its id."""
    model = model_of(decision)
    if not isinstance(model, ExactModel) or is_small(model):
        return exact_search(decision, options)
    key = record_id(decision.id, options)
    record: ExactRecord | None = caches["default"].get(key)
    if (
        caches["default"].add(_request(key), (decision.id, options), _KEPT_SECONDS)
        and record is None
    ):
        settle(user, deposit=0, used=options.limit_seconds)
    if record is None:
        enqueue(TASK, search=key, hub=current_hub_id())
    return record or key


def _request(search: str) -> str:
    return f"exact-request-{current_hub_id()}-{search}"


def result_of(search: str) -> ExactRecord | None:
    """Return a record requested on this hub, None while a worker has to search. Raise UnknownSearchError.

    The request sends the hint again: a lost one delays the search until the next request.
    """
    is_key = (
        search.isascii() and search.isprintable() and " " not in search
    )  # others a cache refuses
    if not is_key or caches["default"].get(_request(search)) is None:
        raise UnknownSearchError(f"no exact search {search}")
    record: ExactRecord | None = caches["default"].get(search)
    if record is None:
        enqueue(TASK, search=search, hub=current_hub_id())
    return record


def search_requested(search: str) -> None:
    """Search for a request that has no record yet; one search at a time."""
    request = caches["default"].get(_request(search))
    if request is None or caches["default"].get(search) is not None:
        return
    decision_id, options = request
    if not caches["default"].add(
        "exact-search", search, options.limit_seconds + 2 * GRACE_SECONDS
    ):
        return
    try:
        record = search_in_child(recorded(decision_id)[1], options)
    finally:
        caches["default"].delete("exact-search")
    caches["default"].set(
        search, record, _KEPT_SECONDS if record.is_final else _CUT_SECONDS
    )
