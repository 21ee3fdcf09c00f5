"""Asking many clusters at once, so that a slow one delays no other."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from enum import Enum
from logging import getLogger
from typing import TypeVar

from clusters.drivers.base import DriverError, DriverUnavailable
from fleetui.apimachinery.errors import InvalidManifest

log = getLogger(__name__)
Key = TypeVar("Key")
Value = TypeVar("Value")


class NotCalled(Enum):
    """Result of a call that was not started."""

    TIME_WAS_UP = "time was up"
    LEASE_WAS_OVER = "lease was over"


def call_all(
    questions: Mapping[Key, Callable[[], Value]], *, threads: int, seconds: float, patience: float
) -> Iterator[tuple[Key, Value | DriverError | NotCalled]]:
    """Run the calls in their order in so many threads, and yield each result when it arrives.

    After `seconds` no further call starts, and running ones have `patience` seconds left. A call must end by
    its own timeout; otherwise it blocks its thread, and finally the process. With no thread the calls run in
    that of the caller.
    """
    if threads == 0:
        for key, ask in questions.items():
            done: Future[Value] = Future()
            try:
                done.set_result(ask())
            except (DriverError, InvalidManifest) as error:
                done.set_exception(error)
            answer = _answer(done)
            yield key, answer
        return
    pool = ThreadPoolExecutor(min(threads, len(questions)) or 1, thread_name_prefix="ask")
    open_ones: dict[Future[Value], Key] = {pool.submit(ask): key for key, ask in questions.items()}
    try:
        with suppress(TimeoutError):
            for future in as_completed(list(open_ones), timeout=seconds):
                key = open_ones.pop(future)
                answer = _answer(future)
                yield key, answer
        asked = {future: key for future, key in open_ones.items() if not future.cancel()}
        yield from ((open_ones[future], NotCalled.TIME_WAS_UP) for future in open_ones.keys() - asked.keys())
        yield from _last_ones(asked, patience)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _last_ones(
    asked: Mapping[Future[Value], Key], patience: float
) -> Iterator[tuple[Key, Value | DriverError]]:
    """Yield the results that arrived while the consumer was busy."""
    answered, late = wait(asked, timeout=patience)
    for future in answered:
        answer = _answer(future)
        yield asked[future], answer
    yield from ((asked[future], DriverUnavailable("it did not keep to its time-out")) for future in late)


def _answer(future: Future[Value]) -> Value | DriverError:
    match future.exception():
        case None:
            return future.result()
        case DriverError() as error:
            return error
        case InvalidManifest() as faults:
            return DriverUnavailable(f"its connection is malformed: {faults}")
        case error:  # a fault of the driver: the calls to other clusters go ahead
            log.error("driver failed", exc_info=error)
            return DriverUnavailable(f"internal error: {type(error).__name__}")
