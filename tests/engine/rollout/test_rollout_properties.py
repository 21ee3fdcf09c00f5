"""What holds for every rollout, whatever happens to it on its way; each start is checked by the world."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.engine.rollout.actions import Remove, RunPhase
from placements.engine.rollout.budget import BudgetKind, Budgets, budgets_of
from placements.engine.rollout.rolling_update import needs_run, next_actions, next_step
from placements.engine.rollout.state import Deletion, Phase, RolloutState, Suspension
from placements.engine.rollout.waves import (
    Wave,
    compare_limits,
    completed,
    plan_waves,
)
from tests.engine.rollout.random_rollouts import Event, events, rollouts
from tests.engine.rollout.states import NOON
from tests.engine.rollout.world import World

SECONDS = {"a": 3, "b": 30, "d-2": 4, "e": 0}


def _can_finish(state: RolloutState) -> bool:
    """Return whether a rollout can finish: `rules/lifecycle.md#order`; no removal is blocked for good.

    Without any surge and with exactly as many clusters found as the floor demands, replacement and removal
    wait for each other.
    """
    budgets = budgets_of(state)
    steps = [step for cluster in state.clusters if (step := next_step(cluster, state))]
    in_place = any(step.budget is BudgetKind.UPDATE for step in steps)
    removes = any(isinstance(step.action, Remove) for step in steps)
    slack = budgets.updates.number - budgets.removals.minimum
    return (budgets.updates.limit > 0 or not in_place) and (
        not removes or slack > 0 or (slack == 0 and budgets.additions.limit > 0)
    )


def _calmed(world: World) -> World:
    world.state = replace(
        world.state,
        clusters=tuple(
            cluster._replace(unreachable_since=None, is_in_fleet=True, retry_at=None)
            for cluster in world.state.clusters
        ),
    )
    return World(replace(world.state, suspension=Suspension.NONE), seconds=SECONDS)


@pytest.mark.nightly
@given(rollouts(), st.lists(events, max_size=12), st.booleans())
def test_every_start_keeps_the_rules_and_what_can_finish_finishes(
    rollout: RolloutState, sequence: list[Event], timed: bool
) -> None:
    world = World(rollout, seconds=SECONDS, timed=timed)
    for event in sequence:
        event(world)
    world = _calmed(world)
    can_finish = _can_finish(world.state)

    answer = world.run()

    assert answer.phase is RunPhase.FINISHED or not can_finish
    assert answer.phase is RunPhase.HALTED or not needs_run(world.state)


@given(rollouts(calm=True))
def test_a_cluster_changes_at_most_once_when_nothing_fails(
    rollout: RolloutState,
) -> None:
    world = World(rollout, seconds=SECONDS)

    world.run()

    counts = Counter(action.cluster for _, action in world.starts)
    assert all(count == 1 for count in counts.values())
    assert set(counts) <= {
        cluster.name for cluster in rollout.clusters if next_step(cluster, rollout)
    }


@given(rollouts(), st.sampled_from((Suspension.PAUSED, Suspension.STOPPED)))
def test_nothing_starts_while_it_is_suspended(
    rollout: RolloutState, hold: Suspension
) -> None:
    assert next_actions(replace(rollout, suspension=hold)).actions == ()


@given(rollouts(), st.randoms())
def test_the_order_of_the_clusters_does_not_matter(
    rollout: RolloutState, random: Random
) -> None:
    shuffled = list(rollout.clusters)
    random.shuffle(shuffled)

    assert next_actions(replace(rollout, clusters=tuple(shuffled))) == next_actions(
        rollout
    )
    assert plan_waves(replace(rollout, clusters=tuple(shuffled))) == plan_waves(rollout)


@given(rollouts())
def test_every_cluster_that_is_not_done_is_accounted_for_once(
    rollout: RolloutState,
) -> None:
    answer = next_actions(rollout)

    answered = {action.cluster for action in answer.actions} | {
        cluster.cluster for cluster in answer.blocked
    }
    busy = {cluster.cluster for cluster in answer.in_progress}
    open_ones = {
        cluster.name
        for cluster in rollout.clusters
        if not rollout.is_done(cluster)
        and (cluster.is_in_fleet or cluster.wanted is not None)
    }
    assert open_ones <= answered | busy
    assert not {action.cluster for action in answer.actions} & {
        cluster.cluster for cluster in answer.blocked
    }
    assert (answer.phase is RunPhase.FINISHED) == (not open_ones)


@given(rollouts())
def test_budgets_recompute_from_the_clusters(rollout: RolloutState) -> None:
    answer = next_actions(rollout)

    before = _without_starts(answer.budgets)
    at_risk = {
        cluster.name for cluster in rollout.clusters if rollout.is_available(cluster)
    }
    taken = [action for action in answer.actions if action.cluster in at_risk]
    assert before == budgets_of(rollout)
    assert (
        answer.budgets.updates.at_risk == answer.budgets.removals.at_risk == len(taken)
    )
    for floor in (answer.budgets.updates, answer.budgets.removals):
        assert floor.allowed == max(
            0, floor.ready - len(taken) - max(0, floor.number - floor.limit)
        )


def _deleted(rollout: RolloutState) -> RolloutState:
    deletion = Deletion(NOON, len(rollout.clusters), abandons=False)
    return replace(rollout.with_wanted({}), deletion=deletion)


def _without_starts(budgets: Budgets) -> Budgets:
    return replace(
        budgets,
        updates=replace(budgets.updates, at_risk=0),
        removals=replace(budgets.removals, at_risk=0),
        additions=replace(budgets.additions, added=0),
    )


@given(st.one_of(rollouts(), rollouts().map(_deleted)))
def test_waves_are_what_repeated_syncs_would_start(rollout: RolloutState) -> None:
    made = plan_waves(rollout)

    world = replace(
        rollout,
        clusters=tuple(cluster._replace(retry_at=None) for cluster in rollout.clusters),
    )
    waves: list[Wave] = []
    for _ in range(40):
        answer = next_actions(world)
        if answer.actions:
            waves.append(Wave(len(waves) + 1, answer.actions, answer.budgets))
        world = completed(world, answer.actions)
    assert made.waves == tuple(waves)
    assert made.rest == next_actions(world)


@given(st.one_of(rollouts(), rollouts().map(_deleted)))
def test_a_compared_limit_has_as_many_waves_as_its_plan(rollout: RolloutState) -> None:
    compared = compare_limits(plan_waves(rollout))

    strategies = [
        rollout.strategy.model_copy(update={"max_unavailable": limit.max_unavailable})
        for limit in compared
    ]
    plans = [plan_waves(replace(rollout, strategy=strategy)) for strategy in strategies]
    assert [limit.waves for limit in compared] == [len(plan.waves) for plan in plans]


@pytest.mark.nightly
@given(rollouts())
def test_waves_cover_exactly_the_clusters_to_change(rollout: RolloutState) -> None:
    made = plan_waves(rollout)

    planned = [action.cluster for wave in made.waves for action in wave.actions]
    to_change = {
        cluster.name
        for cluster in rollout.clusters
        if cluster.is_in_fleet and next_step(cluster, rollout)
    }
    assert len(planned) == len(set(planned))
    assert (
        set(planned) | {cluster.cluster for cluster in made.rest.blocked} >= to_change
    )
    assert set(planned) <= to_change


@given(rollouts(), st.lists(events, max_size=6))
def test_a_deletion_empties_every_cluster_in_reach(
    rollout: RolloutState, sequence: list[Event]
) -> None:
    world = World(rollout, seconds=SECONDS)
    for event in sequence:
        event(world)
    world = _calmed(world)
    world.want({})
    world.state = replace(world.state, deletion=Deletion(NOON, len(rollout.clusters)))

    assert world.run().phase is RunPhase.FINISHED
    assert {cluster.phase for cluster in world.state.clusters} <= {
        Phase.NOT_STARTED,
        Phase.REMOVED,
    }
