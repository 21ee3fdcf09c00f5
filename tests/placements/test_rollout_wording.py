"""What a rolling update says of itself: the arithmetic, why a cluster waits, and what would free it."""

import pytest

from placements.explain.rollout_wording import (
    ceiling_sentence,
    floor_sentence,
    freeing_sentence,
    held_back_sentence,
    slots_sentence,
    under_way_sentence,
    waiting_sentence,
)
from placements.explain.run_wording import waiters_of
from placements.rollout.answer import HeldBack
from placements.rollout.budget import Ceiling, Floor, Slots
from placements.rollout.rolling import next_actions
from placements.rollout.state import Deletion, Hold, Phase, RolloutState
from tests.builders import pick_n
from tests.rollout.states import (
    NEW,
    NOON,
    after,
    available,
    budget,
    cluster,
    done,
    empty,
    gone,
    leaving,
    lost,
    state,
)

SETTLING = cluster("palemoth", Phase.SETTLING, runs=NEW, timed_since=after(0))
REMOVING = leaving("palemoth", Phase.REMOVING)
FAILED = cluster("quiet", Phase.FAILED, runs=NEW, attempts=2, retry_at=after(20))
ONE, NO_SURGE, UP_ONLY = budget(1), budget(1, 0), budget(0, 1)


def test_writes_the_arithmetic_in_a_line() -> None:
    assert floor_sentence(Floor(5, 2, 4)) == "ready 4 − at risk 0 − floor 3 = 1 more may be taken down"
    assert floor_sentence(Floor(5, 2, 4, 1)) == "ready 4 − at risk 1 − floor 3 = 0 more may be taken down"
    assert floor_sentence(Floor(5, 2, 2)) == "ready 2 − at risk 0 − floor 3 = −1: none may be taken down"
    assert ceiling_sentence(Ceiling(5, 2, 5, 1)) == "ceiling 7 − placed 6 = 1 more may be added"
    assert slots_sentence(Slots(3, 2)) == "at once 3 − running 2 = 1 more may be cleared"


def test_says_which_removals_are_held_back() -> None:
    few = HeldBack(0, 5, ("a", "b", "c"), is_for_good=True)

    assert held_back_sentence(few) == (
        "only 0 of 5 found; 3 stay until replacements are available, or lower the number"
    )
    assert held_back_sentence(HeldBack(1, 1, ("a",), is_for_good=False)) == (
        "1 stays until replacements are available"
    )


@pytest.mark.parametrize(
    ("rollout", "why", "freed_by"),
    [
        (
            state(SETTLING, available("x"), strategy=ONE),
            "runs v1 and waits for v2; ready 1 − at risk 0 − floor 1 = 0 more may be taken down",
            "palemoth becoming available at 12:01:00",
        ),
        (
            state(available("a"), available("x"), strategy=ONE),
            "runs v1 and waits for v2; ready 2 − at risk 1 − floor 1 = 0 more may be taken down",
            "a becoming available",
        ),
        (
            state(FAILED, lost(done("y")), available("x"), strategy=ONE),
            "runs v1 and waits for v2; ready 1 − at risk 0 − floor 2 = −1: none may be taken down",
            "quiet succeeding when it is tried again and y coming back",
        ),
        (
            state(available("x"), strategy=UP_ONLY),
            "runs v1 and waits for v2; maxUnavailable 0 lets no cluster be taken down: "
            "ready 1 − at risk 0 − floor 1 = 0 more may be taken down",
            "a larger maxUnavailable",
        ),
        (
            state(leaving("x"), policy=pick_n(5), strategy=ONE),
            "runs v1 and is to be cleared; ready 1 − at risk 0 − floor 4 = −3: none may be taken down",
            "a lower number, a policy that finds more clusters, or a larger maxUnavailable",
        ),
        (
            state(SETTLING, leaving("x"), strategy=UP_ONLY),
            "runs v1 and is to be cleared; ready 1 − at risk 0 − floor 1 = 0 more may be taken down",
            "palemoth becoming available at 12:01:00",
        ),
        (
            state(REMOVING, empty("x"), strategy=NO_SURGE),
            "has nothing yet and waits for v2; ceiling 1 − placed 1 = 0 more may be added",
            "palemoth being cleared",
        ),
        (
            state(available("x"), hold=Hold.PAUSED),
            "runs v1 and waits for v2; the placement is paused",
            "resuming the placement",
        ),
        (
            state(available("x"), hold=Hold.STOPPED),
            "runs v1 and waits for v2; the run was stopped",
            "a new run",
        ),
        (
            state(lost(available("x"))),
            "runs v1 and waits for v2; the cluster cannot be reached since 2026-08-20 12:00:00 UTC",
            "its coming back",
        ),
        (
            state(lost(leaving("x")), deletion=Deletion(NOON, 1)),
            "runs v1 and is to be cleared; the cluster cannot be reached since 2026-08-20 12:00:00 UTC",
            "its coming back, or forgetting it from 12:15:00 on",
        ),
        (
            state(gone(available("x"))),
            "runs v1 and waits for v2; the cluster is no longer in the fleet",
            "the next decision",
        ),
        (
            state(cluster("x", Phase.REMOVING)),
            "waits for v2; the old is being cleared",
            "the end of the removal",
        ),
        (
            state(REMOVING, leaving("x"), deletion=Deletion(NOON, 2)),
            "is to be cleared; at once 1 − running 1 = 0 more may be cleared",
            "palemoth being cleared",
        ),
        (
            state(cluster("x", Phase.FAILED, runs=NEW, attempts=2, retry_at=after(20))),
            "failed 2 times; it is tried again at 12:00:20",
            "a retry now, or a newer version",
        ),
    ],
)
def test_says_why_a_cluster_waits_and_what_would_free_it(
    rollout: RolloutState, why: str, freed_by: str
) -> None:
    answer = next_actions(rollout)
    (waiting,) = (each for each in answer.waiting if each.cluster == "x")

    assert waiting_sentence(waiting, answer) == why
    assert freeing_sentence(waiting, answer) == freed_by


def test_says_what_a_cluster_is_busy_with() -> None:
    phases = (Phase.APPLYING, Phase.REMOVING, Phase.SETTLING)
    facts = [cluster(phase.value, phase, runs=NEW) for phase in phases]

    answer = next_actions(state(SETTLING, *facts))

    assert [under_way_sentence(each) for each in answer.under_way] == [
        "is being applied",
        "settles until 12:01:00",
        "is being cleared",
        "is applied and not available yet",
    ]


def test_several_that_wait_alike_are_said_in_the_plural() -> None:
    answer = next_actions(state(available("a"), available("b"), hold=Hold.PAUSED))

    [one] = waiters_of(answer)

    assert (one.clusters, one.why) == (("a", "b"), "run v1 and wait for v2; the placement is paused")


def test_those_that_run_different_versions_are_told_apart() -> None:
    answer = next_actions(state(available("a"), empty("b"), hold=Hold.PAUSED))

    assert {one.clusters: one.why for one in waiters_of(answer)} == {
        ("a",): "runs v1 and waits for v2; the placement is paused",
        ("b",): "has nothing yet and waits for v2; the placement is paused",
    }
