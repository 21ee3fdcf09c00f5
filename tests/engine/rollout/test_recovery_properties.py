"""What holds for every rollout that meets failures, bad versions and dead regions on its way."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.state import Phase, RolloutState, Suspension
from placements.manifests.strategy import RollingUpdate
from tests.builders import pick_n
from tests.engine.rollout.random_rollouts import (
    NAMES,
    Event,
    budgets,
    one_cluster_events,
    rollouts,
)
from tests.engine.rollout.states import available, state
from tests.engine.rollout.world import World

OLD, BAD, GOOD = "v1", "v2", "v3"
moving_budgets = budgets.filter(lambda strategy: strategy.max_unavailable.of(1) > 0)
fleets = st.lists(st.sampled_from(NAMES), unique=True, min_size=1)


def _world(names: Sequence[str], strategy: RollingUpdate) -> World:
    clusters = [available(name, OLD, wants=BAD) for name in names]
    return World(state(*clusters, strategy=strategy, policy=pick_n(len(names))))


def _available(world: World) -> int:
    return sum(map(world.state.is_available, world.state.clusters))


@given(rollouts(calm=True), st.lists(one_cluster_events, max_size=12))
def test_a_cluster_changes_at_most_once_a_version_whatever_fails(
    rollout: RolloutState, sequence: list[Event]
) -> None:
    world = World(rollout)

    for event in sequence:
        event(world)
        world.step()
    for name in world.clusters:
        world.find(name)
    world.run()

    assert set(world.changes.values()) <= {1}
    assert not world.changes or set(world.changes) <= {
        (cluster.name, cluster.wanted) for cluster in rollout.clusters
    }


@given(fleets, moving_budgets, st.integers(0, 12))
def test_a_bad_version_stops_at_the_floor_and_a_good_one_recovers(
    names: list[str], strategy: RollingUpdate, steps: int
) -> None:
    world = _world(names, strategy)
    world.bad = frozenset({BAD})
    floor = max(0, len(names) - strategy.max_unavailable.of(len(names)))
    for _ in range(steps):
        world.step()
        assert _available(world) >= floor

    world.want(dict.fromkeys(names, GOOD))
    answer = world.run()

    assert answer.phase is RunPhase.FINISHED
    assert {(cluster.running, cluster.phase) for cluster in world.state.clusters} == {
        (GOOD, Phase.AVAILABLE)
    }
    assert all(count == 1 for count in world.changes.values())


@given(fleets, moving_budgets, st.integers(0, 6), st.data())
def test_a_dead_region_fails_over(
    names: list[str], strategy: RollingUpdate, steps: int, data: st.DataObject
) -> None:
    world = _world(names, strategy)
    for _ in range(steps):
        world.step()
    dead = set(data.draw(st.lists(st.sampled_from(names), unique=True)))
    for name in dead:
        world.lose(name)

    others = [name for name in names if name not in dead] + [
        f"spare-{name}" for name in sorted(dead)
    ]
    world.want(dict.fromkeys(others, BAD))
    answer = world.run()

    assert answer.phase is (RunPhase.HALTED if dead else RunPhase.FINISHED)
    assert (
        {cluster.cluster for cluster in answer.blocked}
        == set(answer.may_still_hold)
        == dead
    )
    reached = [cluster for cluster in world.state.clusters if cluster.name in others]
    assert {
        (cluster_state.running, cluster_state.phase) for cluster_state in reached
    } == {(BAD, Phase.AVAILABLE)}

    for name in dead:
        world.find(name)
    assert world.run().phase is RunPhase.FINISHED
    assert {world.clusters[name].phase for name in dead} <= {Phase.REMOVED}


@given(fleets, moving_budgets, st.integers(0, 8))
def test_a_pause_at_any_moment_starts_nothing_and_resumed_it_finishes(
    names: list[str], strategy: RollingUpdate, steps: int
) -> None:
    world = _world(names, strategy)
    for _ in range(steps):
        world.step()
    before = len(world.starts)

    world.state = replace(world.state, suspension=Suspension.PAUSED)
    for _ in range(8):
        world.step()
    assert len(world.starts) == before

    world.state = replace(world.state, suspension=Suspension.NONE)
    assert world.run().phase is RunPhase.FINISHED
