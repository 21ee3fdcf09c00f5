"""Forecasts of the time left, on synthetic rollouts and on simple ones."""

import heapq
import random

import pytest

from placements.engine.rollout.forecast import Step, StepKind, WorkStage, forecast

UPDATE, ADDITION, REMOVAL = StepKind.UPDATE, StepKind.ADDITION, StepKind.REMOVAL


def _run(rng: random.Random, clusters: int, slots: int) -> list[tuple[float, float]]:
    """Roll out over four families of clusters; 3 % stall for 10 to 15 minutes. Return starts and ends."""
    busy, times = [0.0] * slots, []
    for number in range(clusters):
        start = heapq.heappop(busy)
        end = start + rng.lognormvariate((3.0, 3.6, 4.2, 3.3)[number % 4], 0.35)
        end += rng.uniform(600, 900) if rng.random() < 0.03 else 0
        heapq.heappush(busy, end)
        times.append((start, end))
    return times


@pytest.mark.parametrize(
    ("clusters", "slots", "rollouts"),
    [
        (100, 10, 60),
        pytest.param(100, 10, 300, marks=pytest.mark.nightly),
        pytest.param(500, 25, 120, marks=pytest.mark.nightly),
    ],
)
def test_the_interval_holds_for_70_to_90_percent_with_three_past_runs(
    clusters: int, slots: int, rollouts: int
) -> None:
    rng, right = random.Random(1), 0
    for seed in range(rollouts):
        past = [end - start for _ in range(3) for start, end in _run(rng, clusters, slots)]
        times = _run(rng, clusters, slots)
        ends = sorted(end for _, end in times)
        now = ends[int(0.3 * clusters)]
        steps = [Step(UPDATE, now - start if start <= now else None) for start, end in times if end > now]
        found = forecast([WorkStage(steps, 0, slots)], {UPDATE: past}, runs=3, seed=seed)
        right += found.p10 <= ends[-1] - now <= found.p90

    assert 0.7 <= right / rollouts <= 0.9


def test_equal_durations_and_fixed_waits_are_added_to_the_second() -> None:
    steps = [Step(UPDATE, elapsed=4.0, wait=60)] + [Step(UPDATE, wait=60)] * 5
    stages = [WorkStage(steps, 0, 2, wait=300), WorkStage([Step(ADDITION)] * 3, 3, 0)]

    found = forecast(stages, {UPDATE: [10.0], ADDITION: [7.0]}, runs=3, seed=0)

    # The first slot: 6 s and 60 s left of its step, then two steps of 70 s; the second: three of 70 s.
    assert (found.p10, found.p50, found.p90) == (210 + 300 + 7, 210 + 300 + 7, 210 + 300 + 7)


def test_a_step_that_time_alone_ends_and_one_slower_than_all_past_ones() -> None:
    steps = [Step(UPDATE, elapsed=50.0, left=12.0), Step(UPDATE, elapsed=50.0)]

    found = forecast([WorkStage(steps, 0, 2)], {UPDATE: [10.0]}, runs=3, seed=0)

    assert (found.p50, found.slower) == (12, 1)


def test_additions_have_slots_of_their_own() -> None:
    steps = [Step(ADDITION)] * 4 + [Step(REMOVAL)] * 2

    found = forecast([WorkStage(steps, 2, 1)], {ADDITION: [10.0], REMOVAL: [30.0]}, runs=5, seed=0)

    assert found.p50 == 60


def test_few_past_runs_widen_the_interval() -> None:
    steps, past = [Step(UPDATE)] * 40, [float(number % 17) for number in range(40)]

    few, many = (forecast([WorkStage(steps, 0, 4)], {UPDATE: past}, runs=runs, seed=3) for runs in (1, 3))

    assert few.p90 - few.p10 > 1.2 * (many.p90 - many.p10)
