"""The states of the clusters of a rollout, as counts."""

import pytest
from hypothesis import given

from placements.engine.rollout.rolling_update import next_actions
from placements.engine.rollout.state import Phase
from placements.engine.rollout.waves import RolloutProgress, rollout_progress
from tests.engine.rollout.random_rollouts import rollouts
from tests.engine.rollout.states import (
    available,
    budget,
    cluster,
    done,
    empty,
    leaving,
    lost,
    state,
)


def test_every_cluster_stands_in_one_count() -> None:
    rollout = state(
        available("a"),
        done("b"),
        cluster("c", Phase.APPLIED, runs="v2"),
        cluster("d", Phase.FAILED),
        leaving("e", Phase.REMOVING),
        lost(done("f")),
        strategy=budget(unavailable=0, surge=1),
    )

    counted = rollout_progress(rollout, next_actions(rollout))

    assert counted == RolloutProgress(
        old=1, new=1, unavailable=3, removing=1, number=5, min_available=5, max_total=6
    )
    assert (counted.available, counted.placed) == (2, 6)


def test_what_starts_now_is_not_available_any_more() -> None:
    rollout = state(
        available("a"), available("b"), leaving("c"), empty("d"), strategy=budget(2, 1)
    )

    counted = rollout_progress(rollout, next_actions(rollout))

    assert counted == RolloutProgress(
        old=1, new=0, unavailable=2, removing=1, number=3, min_available=1, max_total=4
    )


@pytest.mark.nightly
@given(rollouts())
def test_counts_add_up_to_who_holds_resources_or_begins_to(rollout) -> None:
    answer = next_actions(rollout)
    starting = {action.cluster for action in answer.actions}

    counted = rollout_progress(rollout, answer)

    holders = [
        one for one in rollout.clusters if one.has_resources or one.name in starting
    ]
    assert counted.placed == len(holders)
    assert (
        counted.available
        == answer.budgets.updates.ready - answer.budgets.updates.at_risk
    )
