"""Many clusters are called at once, independently."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from clusters.drivers.base import DriverRejected, DriverUnavailable
from clusters.drivers.concurrency import NotCalled, call_all


def nothing() -> None:
    pass


def results_of(
    functions: dict[Any, Callable[[], Any]], **limits: Any
) -> dict[Any, Any]:
    """Call, by default with much time."""
    return dict(
        call_all(
            functions,
            **{
                "threads": 4,
                "seconds": 30,
                "patience": 30,
                "at_end": nothing,
                **limits,
            },
        )
    )


def failing(error: Exception) -> Callable[[], Any]:
    """Return a function that fails."""

    def call() -> Any:
        raise error

    return call


def test_every_question_gets_its_own_answer() -> None:
    away, no = DriverUnavailable("away"), DriverRejected("no")

    found = results_of(
        {1: lambda: "one", 2: failing(away), 3: failing(no), 4: lambda: "four"}
    )

    assert found == {1: "one", 2: away, 3: no, 4: "four"}


def test_no_calls_are_no_results() -> None:
    assert results_of({}) == {}


def test_a_fault_of_a_driver_is_logged_and_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = results_of({1: lambda: 1 / 0, 2: lambda: "two"})

    assert isinstance(found[1], DriverUnavailable)
    assert str(found[1]) == "internal error: ZeroDivisionError"
    assert found[2] == "two"
    assert "ZeroDivisionError" in caplog.text


def test_a_slow_one_delays_no_other() -> None:
    gate = threading.Event()
    answers = call_all(
        {"slow": gate.wait, **{number: lambda: True for number in range(50)}},
        threads=2,
        seconds=30,
        patience=30,
        at_end=nothing,
    )

    first_fifty = [next(answers)[0] for _ in range(50)]
    gate.set()

    assert "slow" not in first_fifty
    assert next(answers)[0] == "slow"


def test_no_more_threads_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    results_of(dict.fromkeys(range(20), call), threads=3)

    assert 1 <= most <= 3


def test_what_was_not_begun_in_time_was_not_called_and_what_was_begun_may_end() -> None:
    def call() -> str:
        time.sleep(0.9)
        return "done"

    found = results_of({1: call, 2: call}, threads=1, seconds=0.5)

    assert found == {1: "done", 2: NotCalled.TIME_WAS_UP}


def test_one_that_does_not_keep_to_its_time_out_is_unavailable() -> None:
    gate = threading.Event()

    found = results_of({1: gate.wait}, threads=1, seconds=0.5, patience=0.05)
    gate.set()

    assert isinstance(found[1], DriverUnavailable)


def test_a_slow_listener_loses_no_answer() -> None:
    begun = threading.Event()
    answers = call_all(
        {1: lambda: "a", 2: begun.set},
        threads=1,
        seconds=0.5,
        patience=1,
        at_end=nothing,
    )

    first = next(answers)
    begun.wait()
    time.sleep(0.6)

    assert dict([first, *answers]) == {1: "a", 2: None}
