"""A search in a child process that is bounded in time and memory."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from placements.engine.exact.record import (
    REQUEST_OPTIONS,
    ExactVerdict,
    OpenReason,
    exact_search,
)
from placements.services.decisions import exact_process as child
from placements.services.decisions.exact_process import search_in_child
from tests.engine.exact.random_problems import dead_end


class KilledAtOnce(subprocess.Popen[bytes]):
    """A child process that gets SIGKILL as soon as it exists."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.kill()


@pytest.mark.nightly
def test_a_child_finds_what_a_search_in_this_process_finds() -> None:
    for number in (8, 18):
        decision = dead_end(number)
        here, there = (
            exact_search(decision, REQUEST_OPTIONS),
            search_in_child(decision, REQUEST_OPTIONS),
        )

        assert replace(there, seconds=0) == replace(here, seconds=0)


@pytest.mark.nightly
def test_a_child_that_ends_early_leaves_an_open_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decision = dead_end()
    broken: list[tuple[object, str, object]] = [
        (child.subprocess, "Popen", KilledAtOnce),
        (child, "MOST_BYTES", 8 * 1024**2),
        (child, "GRACE_SECONDS", 0.01 - REQUEST_OPTIONS.limit_seconds),
    ]
    for place, name, value in broken:
        with monkeypatch.context() as patched:
            patched.setattr(place, name, value)
            record = search_in_child(decision, REQUEST_OPTIONS)

        assert (record.verdict, record.reason) == (
            ExactVerdict.OPEN,
            OpenReason.SOLVER_ENDED,
        ), name
        assert (record.low, record.high) == (5, 8)

    assert search_in_child(decision, REQUEST_OPTIONS).is_possible
