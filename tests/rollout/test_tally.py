"""How the clusters of a rollout stand, as counts."""

from hypothesis import given

from placements.rollout.rolling import next_actions
from placements.rollout.state import Phase
from placements.rollout.tally import Tally, tally_of
from tests.rollout.random_rollouts import rollouts
from tests.rollout.states import available, budget, cluster, done, empty, leaving, lost, state


def test_every_cluster_stands_in_one_count() -> None:
    rollout = state(
        available("a"),
        done("b"),
        cluster("c", Phase.SETTLING, runs="v2"),
        cluster("d", Phase.FAILED),
        leaving("e", Phase.REMOVING),
        lost(done("f")),
        strategy=budget(unavailable=0, surge=1),
    )

    counted = tally_of(rollout, next_actions(rollout))

    assert counted == Tally(old=1, new=1, unavailable=3, removing=1, number=5, floor=5, ceiling=6)
    assert (counted.available, counted.placed) == (2, 6)


def test_what_starts_now_is_not_available_any_more() -> None:
    rollout = state(available("a"), available("b"), leaving("c"), empty("d"), strategy=budget(2, 1))

    counted = tally_of(rollout, next_actions(rollout))

    assert counted == Tally(old=1, new=0, unavailable=2, removing=1, number=3, floor=1, ceiling=4)


@given(rollouts())
def test_counts_add_up_to_who_holds_resources_or_begins_to(rollout) -> None:
    answer = next_actions(rollout)
    starting = {action.cluster for action in answer.actions}

    counted = tally_of(rollout, answer)

    holders = [one for one in rollout.clusters if one.has_resources or one.name in starting]
    assert counted.placed == len(holders)
    assert counted.available == answer.budgets.updates.ready - answer.budgets.updates.at_risk
