"""What may start: `rules/lifecycle.md#starts` rule by rule, and what is said of what may not."""

from datetime import timedelta

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.rollout.actions import (
    BlockedCluster,
    BlockedRemovals,
    BlockReason,
    InProgressCluster,
    Remove,
    RunPhase,
    StartUpdate,
    UpdateReason,
)
from placements.engine.rollout.budget import Budgets, MaxTotal, MinAvailable
from placements.engine.rollout.rolling_update import needs_run, next_actions
from placements.engine.rollout.state import ClusterState, Phase, Suspension
from tests.builders import pick_fixed, pick_n
from tests.engine.rollout.states import (
    NEW,
    OLD,
    after,
    available,
    blocks,
    brief,
    budget,
    cluster,
    done,
    empty,
    gone,
    leaving,
    lost,
    state,
)


def test_finishes_when_every_cluster_runs_what_is_wanted() -> None:
    answer = next_actions(
        state(done("a"), cluster("b", Phase.REMOVED, runs=None, wants=None))
    )

    assert (answer.phase, answer.actions, answer.blocked) == (RunPhase.FINISHED, (), ())


def test_is_not_finished_before_the_last_cluster_is_available() -> None:
    answer = next_actions(state(done("a"), cluster("b", Phase.APPLYING, runs=NEW)))

    assert (answer.phase, answer.in_progress) == (
        RunPhase.WAITS,
        (InProgressCluster("b", Phase.APPLYING),),
    )


def test_takes_down_no_more_available_clusters_than_the_floor_leaves() -> None:
    answer = next_actions(state(*map(available, "abcd"), strategy=budget(2, 0)))

    assert brief(answer.actions) == "a:update b:update"
    assert blocks(answer) == {"c": "update-floor", "d": "update-floor"}
    assert answer.budgets.updates == MinAvailable(number=4, limit=2, ready=4, at_risk=2)
    assert (answer.budgets.updates.minimum, answer.budgets.updates.allowed) == (2, 0)


def test_a_waiting_cluster_shows_what_runs_there_beside_what_it_waits_for() -> None:
    answer = next_actions(state(available("a"), available("b"), strategy=budget(1)))

    update = StartUpdate("b", NEW, UpdateReason.UPDATE)
    assert answer.blocked == (
        BlockedCluster("b", BlockReason.UPDATE_FLOOR, update, running=OLD, wanted=NEW),
    )


def test_adds_clusters_up_to_the_ceiling() -> None:
    answer = next_actions(
        state(*map(empty, "abc"), leaving("x"), leaving("y"), strategy=budget(1, 1))
    )

    assert brief(answer.actions) == "a:add b:add"
    assert blocks(answer) == {
        "c": "ceiling",
        "x": "removal-floor",
        "y": "removal-floor",
    }
    assert answer.budgets.additions == MaxTotal(number=3, limit=1, holding=2, added=2)


def test_first_placement_is_limited_by_the_ceiling_only() -> None:
    answer = next_actions(state(*map(empty, "abcd"), strategy=budget(1, 1)))

    assert brief(answer.actions) == "a:add b:add c:add d:add"


def test_failing_and_settling_clusters_hold_resources() -> None:
    facts = [
        cluster("a", Phase.FAILED, runs=NEW, retry_at=after(9)),
        cluster("x", Phase.REMOVING, wants=None),
    ]

    answer = next_actions(state(*facts, empty("b"), strategy=budget(1, 0)))

    assert answer.budgets.additions == MaxTotal(number=2, limit=0, holding=2)
    assert blocks(answer) == {"a": "retry-later", "b": "ceiling"}


@pytest.mark.parametrize(
    "phase", [Phase.APPLYING, Phase.APPLIED, Phase.FAILED, Phase.REMOVE_FAILED]
)
def test_a_newer_version_starts_at_once_where_nothing_is_available(
    phase: Phase,
) -> None:
    facts = cluster("a", phase, retry_at=after(60))

    answer = next_actions(state(facts, available("b"), strategy=budget(1)))

    assert brief(answer.actions) == "a:new"
    assert blocks(answer) == {"b": "update-floor"}


@pytest.mark.parametrize("phase", [Phase.APPLYING, Phase.APPLIED, Phase.FAILED])
def test_a_removal_starts_at_once_where_nothing_is_available(phase: Phase) -> None:
    facts = cluster("a", phase, wants=None, retry_at=after(60))

    answer = next_actions(state(facts, leaving("b"), policy=pick_n(5)))

    assert brief(answer.actions) == "-a"
    assert blocks(answer) == {"b": "removal-floor"}


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.REMOVE_FAILED])
def test_a_failure_is_tried_again_when_it_is_due(phase: Phase) -> None:
    wants = NEW if phase is Phase.FAILED else None
    facts = cluster("a", phase, runs=NEW, wants=wants, attempts=2, retry_at=after(5))

    early, due = (next_actions(state(facts, at=after(second))) for second in (4, 5))

    assert (early.phase, early.requeue_at, blocks(early)) == (
        RunPhase.WAITS,
        after(5),
        {"a": "retry-later"},
    )
    retry = (
        StartUpdate("a", NEW, UpdateReason.RETRY, attempt=3)
        if wants
        else Remove("a", attempt=3)
    )
    assert due.actions == (retry,)


def test_order_is_free_ones_then_removals_then_updates_then_additions() -> None:
    facts = (
        empty("a"),
        available("b"),
        leaving("c"),
        cluster("d", Phase.FAILED),
        leaving("e", Phase.FAILED),
    )

    answer = next_actions(state(*facts, strategy=budget(3, 3)))

    assert brief(answer.actions) == "d:new -c -e b:update a:add"


def test_removals_take_the_budget_before_updates() -> None:
    answer = next_actions(
        state(available("a"), available("b"), leaving("c"), strategy=budget(1, 0))
    )

    assert brief(answer.actions) == "-c a:update"
    assert answer.budgets.removals.at_risk == 2


def test_names_go_by_their_bytes() -> None:
    answer = next_actions(
        state(*map(available, ("a-2", "a-10", "a.1", "a0")), strategy=budget("100%"))
    )

    assert brief(answer.actions) == "a-10:update a-2:update a.1:update a0:update"


def test_without_unavailability_updates_go_before_removals() -> None:
    answer = next_actions(
        state(available("a"), available("b"), leaving("c"), strategy=budget(0, 1))
    )

    assert brief(answer.actions) == "a:update"
    assert blocks(answer) == {"b": "update-floor", "c": "removal-floor"}


def test_without_unavailability_updates_in_place_do_not_start() -> None:
    answer = next_actions(state(*map(available, "ab"), strategy=budget("0%", 1)))

    assert (answer.phase, answer.budgets.updates) == (
        RunPhase.HALTED,
        MinAvailable(number=2, limit=0, ready=2),
    )


def test_without_surge_a_replacement_waits_for_a_removal() -> None:
    answer = next_actions(
        state(empty("a"), done("b"), leaving("x"), strategy=budget(1, 0))
    )

    assert brief(answer.actions) == "-x"
    assert blocks(answer) == {"a": "ceiling"}


@pytest.mark.parametrize(
    ("count", "amount", "limit"),
    [
        (10, "25%", 3),
        (4, "25%", 1),
        (5, "25%", 2),
        (1, "1%", 1),
        (3, "100%", 3),
        (3, "0%", 0),
        (3, 7, 7),
    ],
)
def test_percentages_round_up(count: int, amount: int | str, limit: int) -> None:
    facts = [available(f"c{number}") for number in range(count)]

    budgets = next_actions(state(*facts, strategy=budget(amount, "1%"))).budgets

    assert (budgets.updates.limit, budgets.updates.minimum) == (
        limit,
        max(0, count - limit),
    )
    assert budgets.additions.maximum == count + 1


def test_both_budgets_zero_are_refused_by_the_parser() -> None:
    with pytest.raises(InvalidManifest, match="both be 0"):
        budget(0, "0%")


def test_updates_are_measured_against_the_clusters_selected() -> None:
    answer = next_actions(
        state(available("a"), available("b"), policy=pick_n(5), strategy=budget(1))
    )

    assert answer.budgets.updates == MinAvailable(number=2, limit=1, ready=2, at_risk=1)
    assert answer.budgets.removals == MinAvailable(
        number=5, limit=1, ready=2, at_risk=1
    )


def test_removals_are_held_back_where_the_policy_finds_too_few() -> None:
    answer = next_actions(state(*map(leaving, "abcde"), policy=pick_n(5)))

    assert brief(answer.actions) == "-a -b"
    assert answer.blocked_removals == BlockedRemovals(
        0, 5, ("c", "d", "e"), is_permanent=True
    )


def test_names_that_are_not_there_count_for_the_floor() -> None:
    answer = next_actions(
        state(leaving("a"), done("b"), policy=pick_fixed("b", "c", "d"))
    )

    assert answer.budgets.removals == MinAvailable(number=3, limit=1, ready=2)
    assert answer.blocked_removals == BlockedRemovals(1, 3, ("a",), is_permanent=True)


def test_pick_all_without_any_cluster_holds_nothing_back() -> None:
    answer = next_actions(state(*map(leaving, "abc")))

    assert (brief(answer.actions), answer.blocked_removals) == ("-a -b -c", None)


def test_removals_wait_for_replacements_but_not_for_good() -> None:
    facts = (cluster("a", Phase.APPLYING, runs=NEW), leaving("x"))

    answer = next_actions(state(*facts, policy=pick_n(1), strategy=budget(0, 1)))

    assert answer.blocked_removals == BlockedRemovals(1, 1, ("x",), is_permanent=False)
    assert answer.phase is RunPhase.WAITS


def test_no_available_cluster_is_taken_down_after_a_loss() -> None:
    answer = next_actions(
        state(lost(done("a")), available("b"), available("c"), strategy=budget(1))
    )

    assert answer.actions == ()
    assert answer.budgets.updates == MinAvailable(number=3, limit=1, ready=2)


def test_a_cluster_out_of_reach_is_skipped_and_named() -> None:
    answer = next_actions(
        state(lost(available("a")), gone(leaving("b")), lost(empty("c")), done("d"))
    )

    assert blocks(answer) == {"a": "unreachable", "c": "unreachable"}
    assert (answer.unreachable, answer.may_still_hold) == (("a", "c"), ("a", "b"))
    assert answer.budgets.additions.holding == 1
    assert answer.phase is RunPhase.HALTED


def test_a_cluster_that_left_the_fleet_does_not_keep_a_run_from_finishing() -> None:
    answer = next_actions(state(gone(leaving("a")), lost(done("b")), gone(done("c"))))

    assert (answer.phase, answer.may_still_hold) == (RunPhase.FINISHED, ("a", "b", "c"))


def test_a_cluster_picked_again_waits_until_its_removal_is_over() -> None:
    removing = cluster("a", Phase.REMOVING)

    answer = next_actions(state(removing))

    assert (answer.phase, blocks(answer)) == (RunPhase.WAITS, {"a": "being-removed"})
    assert brief(next_actions(state(cluster("a", Phase.REMOVED))).actions) == "a:add"


def test_a_cluster_picked_again_after_a_removal_that_failed_is_applied_again() -> None:
    facts = cluster("a", Phase.REMOVE_FAILED, runs=NEW, retry_at=after(60))

    assert brief(next_actions(state(facts)).actions) == "a:new"


def test_a_cluster_unpicked_before_anything_started_needs_nothing() -> None:
    facts = ClusterState("a", None)

    assert next_actions(state(facts)).phase is RunPhase.FINISHED


def test_time_alone_makes_a_cluster_available_that_cannot_be_observed() -> None:
    facts = [
        cluster("a", Phase.APPLIED, runs=NEW, untrackable_since=after(0)),
        available("b"),
    ]

    early, due = (
        next_actions(state(*facts, strategy=budget(1), at=after(at))) for at in (59, 60)
    )

    assert (early.actions, early.requeue_at) == ((), after(60))
    assert early.in_progress == (InProgressCluster("a", Phase.APPLIED, after(60)),)
    assert brief(due.actions) == "b:update"


def test_a_cluster_that_settled_by_time_is_taken_down_from_the_budget() -> None:
    facts = cluster("a", Phase.APPLIED, untrackable_since=after(0))

    early, due = (
        next_actions(state(facts, strategy=budget(1), at=after(at))) for at in (59, 60)
    )

    assert (brief(early.actions), brief(due.actions)) == ("a:new", "a:update")


def test_a_changed_period_counts_at_once() -> None:
    facts = cluster("a", Phase.APPLIED, runs=NEW, untrackable_since=after(0))

    assert (
        next_actions(state(facts, strategy=budget(period=5), at=after(5))).phase
        is RunPhase.FINISHED
    )


def test_a_cluster_whose_readiness_can_be_observed_does_not_settle_by_time() -> None:
    facts = (
        cluster("a", Phase.APPLIED, runs=NEW, phase_changed_at=after(0)),
        available("b"),
    )

    early, late = (
        next_actions(state(*facts, strategy=budget(1), at=after(at))) for at in (60, 61)
    )

    assert (early.phase, early.requeue_at, blocks(early)) == (
        RunPhase.WAITS,
        after(60) + timedelta.resolution,
        {"b": "update-floor"},
    )
    assert (late.phase, late.requeue_at, late.in_progress) == (
        RunPhase.HALTED,
        None,
        (),
    )
    assert blocks(late) == {"a": "not-available", "b": "update-floor"}


@pytest.mark.parametrize("hold", [Suspension.PAUSED, Suspension.STOPPED])
def test_nothing_starts_while_held(hold: Suspension) -> None:
    facts = (
        available("a"),
        leaving("b"),
        empty("c"),
        cluster("d", Phase.FAILED, runs=NEW),
    )

    answer = next_actions(state(*facts, suspension=hold))

    assert answer.actions == ()
    assert set(blocks(answer).values()) == {hold.value}


def test_timed_waits_run_on_during_a_pause() -> None:
    settling = cluster("a", Phase.APPLIED, runs=NEW, untrackable_since=after(0))

    answer = next_actions(state(settling, available("b"), suspension=Suspension.PAUSED))

    assert (answer.phase, answer.requeue_at) == (RunPhase.WAITS, after(60))


@pytest.mark.parametrize(
    ("attempts", "others", "phase"),
    [
        ([2], [], RunPhase.WAITS),
        ([3], [], RunPhase.HALTED),
        ([3, 1], [], RunPhase.WAITS),
        ([3], [cluster("z", Phase.APPLYING, runs=NEW)], RunPhase.WAITS),
    ],
)
def test_stalls_where_nothing_is_left_but_retries_of_what_failed_three_times(
    attempts: list[int], others: list[ClusterState], phase: RunPhase
) -> None:
    failed = [
        cluster(f"a{at}", Phase.FAILED, runs=NEW, attempts=attempt, retry_at=after(60))
        for at, attempt in enumerate(attempts)
    ]

    answer = next_actions(state(*failed, *others, done("b")))

    assert (answer.phase, answer.requeue_at) == (phase, after(60))


def test_nothing_at_all_is_finished() -> None:
    answer = next_actions(state())

    assert answer.phase is RunPhase.FINISHED
    assert answer.budgets == Budgets(
        MinAvailable(0, 0, 0), MinAvailable(0, 0, 0), MaxTotal(0, 0, 0)
    )


@pytest.mark.parametrize(
    ("facts", "needed"),
    [
        (done("a"), False),
        (available("a"), True),
        (empty("a"), True),
        (leaving("a"), True),
        (gone(leaving("a")), False),
        (cluster("a", Phase.REMOVED, runs=None, wants=None), False),
        (cluster("a", Phase.APPLIED, runs=NEW), False),
        (cluster("a", Phase.REMOVING, runs=NEW), True),
    ],
)
def test_a_run_is_needed_where_wanted_and_running_differ(
    facts: ClusterState, needed: bool
) -> None:
    assert needs_run(state(facts)) is needed
