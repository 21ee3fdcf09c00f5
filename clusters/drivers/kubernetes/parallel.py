"""Concurrent requests inside one call of a driver, in one pool of threads per process."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, TypeVar

from clusters.drivers.base import DriverUnavailable

THREADS = 64
WIDTH = 4
"""The most requests at a time of one call."""
_POLL_SECONDS = 0.05

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Planned(Generic[Outcome]):
    """The second step of an item, which runs once all items of earlier waves are finished."""

    run: Callable[[], Outcome]


@cache
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="kubernetes")


os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not survive a fork


def result_of(future: "Future[Outcome]", seconds: float) -> Outcome:
    """Return the result of a future. Raise DriverUnavailable when there is none within so many seconds."""
    try:
        return future.result(timeout=max(0.0, seconds))
    except TimeoutError:  # that of a request is a DriverUnavailable
        future.cancel()
        raise DriverUnavailable("no answer in time", code="timeout") from None


def run_each(
    function: Callable[[Item], Outcome],
    items: Iterable[Item],
    *,
    time_left: Callable[[], float],
) -> list[tuple[Item, Outcome]]:
    """Return the outcomes of a function for all items.

    Raise its first exception, once all calls that started have ended; DriverUnavailable where time is up.
    """
    every = list(items)
    results = run_waves([every], function, time_left=time_left)
    if len(results) < len(every):
        raise DriverUnavailable("no answer in time", code="timeout")
    return results


def run_waves(
    waves: Sequence[Sequence[Item]],
    function: Callable[[Item], Outcome | Planned[Outcome]],
    *,
    time_left: Callable[[], float],
) -> list[tuple[Item, Outcome]]:
    """Run the first step of each item, and its second, if any, after all items of earlier waves.

    First steps of later waves fill the threads that would be idle, which saves round trips to a far cluster.
    Once `time_left` (in seconds) is not positive, no step starts: its item is not among the results.
    """
    first_steps = deque(
        (place, item, partial(function, item))
        for place, items in enumerate(waves)
        for item in items
    )
    second_steps: list[deque[tuple[int, Item, Callable[[], Any]]]] = [
        deque() for _ in waves
    ]
    unfinished = Counter(place for place, _, _ in first_steps)
    running: dict[Future[Any], tuple[int, Item]] = {}
    results: list[tuple[Item, Outcome]] = []
    failure: BaseException | None = None

    while True:
        current = min(
            (place for place, count in unfinished.items() if count), default=None
        )
        while (
            current is not None
            and failure is None
            and len(running) < WIDTH
            and time_left() > 0
        ):
            ready = second_steps[current] or first_steps
            if not ready:
                break
            place, item, run = ready.popleft()
            running[pool().submit(run)] = place, item
        if not running:
            break
        for future in wait(
            running, max(_POLL_SECONDS, time_left()), FIRST_COMPLETED
        ).done:
            place, item = running.pop(future)
            if error := future.exception():
                failure = failure or error
            elif isinstance(outcome := future.result(), Planned):
                second_steps[place].append((place, item, outcome.run))
            else:
                unfinished[place] -= 1
                results.append((item, outcome))
        if time_left() <= 0 or failure:
            # What no thread has started must not wait for the calls to other clusters that fill the pool.
            running = {
                future: place
                for future, place in running.items()
                if not future.cancel()
            }

    if failure is not None:
        raise failure
    return results
