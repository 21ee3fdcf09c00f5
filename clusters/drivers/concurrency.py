"""Calling many clusters at once, so that a slow one delays no other."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack, suppress
from contextvars import copy_context
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
    functions: Mapping[Key, Callable[[], Value]],
    *,
    threads: int,
    seconds: float,
    patience: float,
    at_end: Callable[[], None],
) -> Iterator[tuple[Key, Value | DriverError | NotCalled]]:
    """Run the calls in their order in so many threads, and yield each result when it arrives.

    After `seconds` no further call starts, and running ones have `patience` seconds left. A call must end by
    its own timeout; otherwise it blocks its thread, and finally the process. Each thread calls `at_end` after
    its last call, to close its connections to the database. With no thread the calls run in that of the
    caller. The threads have copies of the caller's context variables.
    """
    calls = deque(
        (Future[Value](), key, function) for key, function in functions.items()
    )
    if threads == 0:
        for future, key, function in calls:
            _run(future, function)
            answer = _answer(future)
            yield key, answer
        return
    open_ones = {future: key for future, key, _ in calls}

    def run_calls() -> None:
        with ExitStack() as stack, suppress(IndexError):
            stack.callback(at_end)
            while True:
                future, _, function = calls.popleft()
                if future.set_running_or_notify_cancel():
                    _run(future, function)

    pool = ThreadPoolExecutor(min(threads, len(calls)) or 1, thread_name_prefix="call")
    for _ in range(min(threads, len(calls))):
        pool.submit(copy_context().run, run_calls)
    try:
        with suppress(TimeoutError):
            for future in as_completed(list(open_ones), timeout=seconds):
                key = open_ones.pop(future)
                answer = _answer(future)
                yield key, answer
        left = {future: key for future, key in open_ones.items() if not future.cancel()}
        yield from (
            (open_ones[future], NotCalled.TIME_WAS_UP)
            for future in open_ones.keys() - left.keys()
        )
        finished, late = wait(
            left, timeout=patience
        )  # some arrived while the consumer was busy
        for future in finished:
            answer = _answer(future)
            yield left[future], answer
        too_late = DriverUnavailable("it did not keep to its time-out", code="timeout")
        yield from ((left[one], too_late) for one in late)
    finally:
        calls.clear()
        pool.shutdown(wait=False, cancel_futures=True)


def _run(future: Future[Value], function: Callable[[], Value]) -> None:
    """Make a call; its error is kept for the caller, as an executor does."""

    def keep(_kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is not None:
            future.set_exception(error)
        return True

    with ExitStack() as stack:
        stack.push(keep)
        future.set_result(function())


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
