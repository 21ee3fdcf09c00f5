"""Gates on the speed of `next_actions` and of the plan: ratios of processor time, which is printed."""

from collections.abc import Callable
from functools import partial
from time import process_time

from placements.rollout.plan import plan
from placements.rollout.rolling import next_actions
from placements.rollout.state import RolloutState
from tests.rollout.states import available, budget, done, empty, leaving, state

MAKERS = (available, empty, leaving, done)


def _mixed(size: int, *, unavailable: int | str = "25%") -> RolloutState:
    clusters = [MAKERS[number % 4](f"c{number:05}") for number in range(size)]
    return state(*clusters, strategy=budget(unavailable))


def _best(action: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = process_time()
        action()
        times.append(process_time() - start)
    return min(times)


def test_time_grows_with_the_number_of_clusters_and_not_faster() -> None:
    small, large = _mixed(500), _mixed(5_000)

    few, many = (_best(partial(next_actions, each)) for each in (small, large))

    print(f"next_actions on 5,000 clusters: {many * 1_000:.0f} ms")
    assert many < 40 * few


def test_a_plan_of_very_many_waves_costs_about_as_much_as_a_few() -> None:
    few, many = _mixed(2_000), _mixed(2_000, unavailable=1)

    assert len(plan(many).waves) > 400 > len(plan(few).waves)
    assert _best(lambda: plan(many)) < 20 * _best(lambda: plan(few))
