"""The order of steps in apply waves."""

import threading
import time
from concurrent.futures import wait

import pytest

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.access import (
    THREADS,
    WIDTH,
    Planned,
    pool,
    result_of,
    run_each,
    run_waves,
)


def plenty() -> float:
    return 60.0


def test_second_steps_wait_for_earlier_waves_and_first_steps_do_not() -> None:
    log: list[str] = []
    is_read = threading.Event()

    def first(item: str) -> str | Planned[str]:
        log.append(f"read {item}")
        if item == "b1":
            is_read.set()

        def write() -> str:
            if item == "a":
                assert is_read.wait(
                    5
                )  # the read of a later wave did not wait for this write
            log.append(f"write {item}")
            return item.upper()

        return Planned(write)

    results = run_waves([["a"], ["b1", "b2"], ["c"]], first, time_left=plenty)

    assert sorted(result for _, result in results) == ["A", "B1", "B2", "C"]
    writes = [line for line in log if line.startswith("write")]
    assert (writes[0], writes[-1]) == ("write a", "write c")


def test_at_most_four_steps_run_at_a_time() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def step(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    run_each(step, range(20), time_left=plenty)

    assert most == WIDTH


def test_what_has_no_time_left_does_not_begin_and_has_no_result() -> None:
    log = []

    def first(item: str) -> str | Planned[str]:
        log.append(item)
        return Planned(item.upper)

    assert run_waves([["a"], ["b"]], first, time_left=lambda: 0.0 if log else 1.0) == []

    assert log[0] == "a"
    with pytest.raises(DriverUnavailable):
        run_each(lambda one: one, range(9), time_left=lambda: 0.0)


def test_a_pool_full_of_other_calls_costs_no_more_than_the_time() -> None:
    is_over = threading.Event()
    others = [pool().submit(is_over.wait, 10) for _ in range(THREADS)]
    until = time.monotonic() + 0.2
    try:
        results = run_waves(
            [["a", "b"]], lambda one: one, time_left=lambda: until - time.monotonic()
        )
        with pytest.raises(DriverUnavailable):
            result_of(pool().submit(int), 0.1)
        needed = time.monotonic() - until
    finally:
        is_over.set()
        wait(others)

    assert results == []
    assert needed < 0.5


def test_an_error_is_raised_after_what_had_begun() -> None:
    ended = []

    def step(number: int) -> None:
        if number == 0:
            raise ValueError("broken")
        time.sleep(0.02)
        ended.append(number)

    with pytest.raises(ValueError, match="broken"):
        run_each(step, range(100), time_left=plenty)

    assert len(ended) <= WIDTH
    names = [thread.name for thread in threading.enumerate()]
    assert sum(name.startswith("kubernetes") for name in names) <= THREADS


def test_nothing_to_do_is_done() -> None:
    empty: list[int] = []

    assert run_each(str, empty, time_left=plenty) == []
    assert run_waves([empty, empty], str, time_left=plenty) == []
