"""Concurrent requests inside one call of a driver, in one pool of threads per process."""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

THREADS = 64
WIDTH = 4
"""The most requests at a time of one call."""

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


def run_each(
    function: Callable[[Item], Outcome],
    items: Iterable[Item],
    *,
    may_start: Callable[[], bool] = lambda: True,
) -> list[tuple[Item, Outcome]]:
    """Return the outcomes of a function for each item that `may_start` let begin.

    Raise its first exception, once all calls that began have ended.
    """
    wave = [list(items)]
    return run_waves(wave, function, may_start=may_start)


def run_waves(
    waves: Sequence[Sequence[Item]],
    function: Callable[[Item], Outcome | Planned[Outcome]],
    *,
    may_start: Callable[[], bool],
) -> list[tuple[Item, Outcome]]:
    """Run the first step of each item, and its second, if any, after all items of earlier waves.

    First steps of later waves fill the threads that would be idle, which saves round trips to a far cluster.
    Items whose next step `may_start` prevented are not among the results.
    """
    first_steps = deque((place, item) for place, items in enumerate(waves) for item in items)
    second_steps: Mapping[int, deque[tuple[Item, Planned[Outcome]]]] = {
        place: deque() for place in range(len(waves))
    }
    unfinished = Counter(place for place, _ in first_steps)
    running: dict[Future[Any], tuple[int, Item]] = {}
    results: list[tuple[Item, Outcome]] = []
    failure: BaseException | None = None

    while True:
        current = min((place for place, count in unfinished.items() if count), default=None)
        while current is not None and failure is None and len(running) < WIDTH and may_start():
            if second_steps[current]:
                item, planned = second_steps[current].popleft()
                running[pool().submit(planned.run)] = current, item
            elif first_steps:
                place, item = first_steps.popleft()
                running[pool().submit(function, item)] = place, item
            else:
                break
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            place, item = running.pop(future)
            if error := future.exception():
                failure = failure or error
            elif isinstance(outcome := future.result(), Planned):
                second_steps[place].append((item, outcome))
            else:
                unfinished[place] -= 1
                results.append((item, outcome))

    if failure is not None:
        raise failure
    return results
