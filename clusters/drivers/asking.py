"""Asking many clusters at once, so that a slow one delays no other."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from enum import Enum
from typing import TypeVar

from clusters.drivers.base import DriverError, DriverUnavailable
from placements.scheduling.faults import Faults

Key = TypeVar("Key")
Value = TypeVar("Value")


class NotAsked(Enum):
    """Stands for an answer where time was up before the question was put."""

    TIME_WAS_UP = "time was up"


def ask_all(
    questions: Mapping[Key, Callable[[], Value]], *, threads: int, seconds: float
) -> Iterator[tuple[Key, Value | DriverError | NotAsked]]:
    """Put the questions in their order, so many at a time, and give each answer when it comes.

    After `seconds` what is still open counts as unanswered, and what was not begun as not asked. A question
    must end by its own time-out: one that does not keeps its thread, and at last the process, waiting.
    """
    pool = ThreadPoolExecutor(min(threads, len(questions)) or 1, thread_name_prefix="ask")
    open_ones: dict[Future[Value], Key] = {pool.submit(ask): key for key, ask in questions.items()}
    try:
        for future in as_completed(list(open_ones), timeout=seconds):
            key = open_ones.pop(future)
            answer = _answer(future)
            yield key, answer
    except TimeoutError:
        late = DriverUnavailable(f"no answer within {seconds:g} s")
        for future, key in open_ones.items():
            yield key, NotAsked.TIME_WAS_UP if future.cancel() else late
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _answer(future: Future[Value]) -> Value | DriverError:
    try:
        return future.result()
    except DriverError as error:
        return error
    except Faults as faults:
        return DriverUnavailable(f"its connection is malformed: {faults}")
