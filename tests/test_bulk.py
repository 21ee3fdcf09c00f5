"""Grouped writes: those that arrive during another share a transaction; an error is that of one of them."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from time import sleep

import pytest
from django.db import IntegrityError

from fleetui.bulk import GroupedWrites

WRITERS = 20


@contextmanager
def grouped(*others: Callable[[], int]) -> Iterator[tuple[list[Future[int]], list[int]]]:
    """Write while a first write is under way; yield the results, the first one's last, and transactions."""
    is_writing, others_wait, groups = Event(), Event(), list[int]()

    @contextmanager
    def begin() -> Iterator[None]:
        groups.append(1)
        yield

    def write_first() -> int:
        is_writing.set()
        return int(others_wait.wait(10))

    writes = GroupedWrites[int](begin)
    with ThreadPoolExecutor(WRITERS) as pool:
        first = pool.submit(writes.run, write_first)
        is_writing.wait(10)
        running = [pool.submit(writes.run, one) for one in others]
        while len(writes._waiting) < len(others):
            sleep(0.001)
        others_wait.set()
        yield [*running, first], groups


def test_writes_that_arrive_during_another_share_a_transaction() -> None:
    with grouped(*[partial(int, number) for number in range(2, WRITERS)]) as (running, groups):
        assert [one.result() for one in running] == [*range(2, WRITERS), 1]
    assert len(groups) == 1


def test_one_that_fails_leaves_the_others_alone() -> None:
    def fail() -> int:
        raise IntegrityError

    with grouped(fail, partial(int, 2)) as ((bad, good, first), _):
        assert (first.result(), good.result()) == (1, 2)
        with pytest.raises(IntegrityError):
            bad.result()
