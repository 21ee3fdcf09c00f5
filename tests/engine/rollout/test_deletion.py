"""Deleting a placement: a limit of its own, and clusters to forget (`rules/lifecycle.md#deletion`)."""

import pytest

from placements.engine.rollout.actions import BlockReason, RunPhase
from placements.engine.rollout.budget import Concurrency
from placements.engine.rollout.rolling_update import next_actions
from placements.engine.rollout.state import Deletion, Phase, Suspension
from placements.engine.rollout.waves import plan_waves
from tests.builders import pick_n
from tests.engine.rollout.states import (
    NOON,
    after,
    blocks,
    brief,
    budget,
    gone,
    leaving,
    lost,
    state,
)
from tests.engine.rollout.world import World


@pytest.mark.parametrize(
    ("unavailable", "number", "limit"),
    [("25%", 10, 3), (0, 10, 1), ("100%", 3, 3), (2, 9, 2)],
)
def test_as_many_run_at_once_as_may_be_unavailable_and_at_least_one(
    unavailable: int | str, number: int, limit: int
) -> None:
    facts = [leaving(f"c{count}") for count in range(9)]

    answer = next_actions(
        state(*facts, strategy=budget(unavailable), deletion=Deletion(NOON, number))
    )

    assert answer.budgets.deletion == Concurrency(limit, running=0, started=limit)
    assert len(answer.actions) == limit
    assert set(blocks(answer).values()) == {BlockReason.DELETION_LIMIT.value}


def test_removals_that_run_already_count() -> None:
    facts = (leaving("a", Phase.REMOVING), leaving("b"), leaving("c", Phase.APPLYING))

    answer = next_actions(state(*facts, strategy=budget(2), deletion=Deletion(NOON, 3)))

    assert brief(answer.actions) == "-b"


def test_a_removal_out_of_reach_does_not_count() -> None:
    facts = (lost(leaving("a", Phase.REMOVING)), leaving("b"))

    assert (
        brief(next_actions(state(*facts, deletion=Deletion(NOON, 2))).actions) == "-b"
    )


def test_there_is_no_floor() -> None:
    facts = [leaving(name) for name in "abcd"]

    world = World(state(*facts, policy=pick_n(4), deletion=Deletion(NOON, 4)))

    assert world.run().phase is RunPhase.FINISHED
    assert world.batches() == [(0, "a"), (10, "b"), (20, "c"), (30, "d")]


def test_clusters_out_of_reach_can_be_forgotten_after_a_quarter_of_an_hour() -> None:
    facts = (
        lost(leaving("a"), after(-3_600)),
        lost(leaving("b"), after(60)),
        gone(leaving("c")),
    )

    answer = next_actions(state(*facts, deletion=Deletion(NOON, 3)))

    assert [cluster.abandonable_from for cluster in answer.blocked] == [
        after(900),
        after(960),
    ]
    assert (answer.phase, answer.may_still_hold) == (RunPhase.HALTED, ("a", "b", "c"))


def test_a_pause_holds_a_deletion_and_a_stop_does_not() -> None:
    deletion = Deletion(NOON, 1)

    paused, stopped = (
        next_actions(state(leaving("a"), suspension=hold, deletion=deletion))
        for hold in (Suspension.PAUSED, Suspension.STOPPED)
    )

    assert blocks(paused) == {"a": "paused"}
    assert brief(stopped.actions) == "-a"


def test_abandoned_resources_stay_and_are_named() -> None:
    deletion = Deletion(NOON, 2, abandons=True)
    rollout = state(
        leaving("b"), leaving("a"), leaving("c", Phase.REMOVED), deletion=deletion
    )

    answer = next_actions(rollout)

    assert (answer.phase, answer.actions, answer.may_still_hold) == (
        RunPhase.FINISHED,
        (),
        ("a", "b"),
    )
    assert plan_waves(rollout).waves == ()
