"""The time left of a run, from the clusters of the same run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.engine.rollout.forecast import WorkSpan, seconds_left
from tests.effort import examples


def test_nothing_is_known_before_the_first_wave_is_done() -> None:
    assert seconds_left([], waiting=4, now=10.0) is None
    assert seconds_left([WorkSpan(0.0), WorkSpan(0.0)], waiting=4, now=10.0) is None
    assert (
        seconds_left([WorkSpan(0.0, 9.0), WorkSpan(0.0)], waiting=4, now=10.0) is None
    )
    assert (
        seconds_left(
            [WorkSpan(0.0, 9.0, is_done=False), WorkSpan(0.0)], waiting=4, now=10.0
        )
        is None
    )


def test_the_rest_takes_as_long_a_cluster_as_those_that_are_done() -> None:
    first = [WorkSpan(0.0, 10.0), WorkSpan(0.0, 10.0)]

    assert seconds_left(first, waiting=4, now=10.0) == 20.0
    assert (
        seconds_left([*first, WorkSpan(10.0), WorkSpan(10.0)], waiting=2, now=14.0)
        == 16.0
    )
    assert (
        seconds_left(
            [*first, WorkSpan(10.0, 20.0), WorkSpan(10.0, 20.0)], waiting=0, now=20.0
        )
        == 0.0
    )


def test_time_without_a_cluster_in_progress_does_not_count() -> None:
    canary = [WorkSpan(0.0, 10.0)]

    assert seconds_left(canary, waiting=2, now=10_000.0) == 20.0
    assert seconds_left([*canary, WorkSpan(10_000.0)], waiting=1, now=10_004.0) == 16.0


def test_the_time_left_grows_while_nothing_ends() -> None:
    spans = [WorkSpan(0.0, 10.0), WorkSpan(10.0)]

    found = [seconds_left(spans, waiting=1, now=now) for now in (15.0, 20.0, 260.0)]

    assert found == [15.0, 10.0, 250.0]


@examples(100)
@given(
    st.integers(1, 20),
    st.integers(2, 12),
    st.floats(0.5, 600),
    st.floats(0, 0.99),
    st.data(),
)
def test_equal_waves_are_exact_at_every_moment_after_the_first(
    at_once: int, waves: int, seconds: float, share: float, data: st.DataObject
) -> None:
    done = data.draw(st.integers(1, waves - 1))
    now = (done + share) * seconds
    spans = [
        WorkSpan(wave * seconds, (wave + 1) * seconds)
        for wave in range(done)
        for _ in range(at_once)
    ]
    spans += [WorkSpan(done * seconds) for _ in range(at_once)]

    found = seconds_left(spans, waiting=at_once * (waves - done - 1), now=now)

    assert found == pytest.approx(waves * seconds - now)
