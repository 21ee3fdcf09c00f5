"""Staged runs step by step (`rules/lifecycle.md#staged-update-runs`)."""

from dataclasses import replace
from datetime import timedelta

from placements.engine.rollout.actions import StartUpdate, UpdateReason
from placements.engine.rollout.staged_run import (
    Approval,
    ApprovalPoint,
    ClusterStep,
    RunStatus,
    Stage,
    StageConcurrency,
    StagedRunOutcome,
    StagedRunPlan,
    StageReason,
    Wait,
    WaitReason,
)
from placements.engine.rollout.state import Phase
from placements.explain.staged_updates import run_sentences
from placements.manifests.staged_update import RunState
from tests.builders import cluster
from tests.engine.rollout.staged_world import NEW, START, World, begin, seen, stage

C1, C3 = (cluster(name, env="prod") for name in ("c1", "c3"))
C2 = cluster("c2", env="canary")
ALL = {"name": "all", "labelSelector": {}}


def two_stages() -> World:
    """Canary c2 with a wait and an approval after it, then prod c1 and c3 with an approval before it."""
    canary = stage("canary", env="canary", wait="60s", after=True)
    return World(begin([canary, stage("prod", env="prod", before=True)], C1, C2, C3))


def of_three(limit: int | str) -> World:
    """One stage with three clusters."""
    return World(begin([{**ALL, "maxConcurrency": limit}], C1, C2, C3))


def test_s37_canary_first_then_after_both_approvals_prod() -> None:
    world = two_stages()

    waiting = world.go_on()
    assert world.started == ["c2"]
    assert waiting.approvals == (Approval("canary", ApprovalPoint.AFTER),)
    assert [wait.reason for wait in waiting.waits] == [
        WaitReason.APPROVAL_AFTER,
        WaitReason.TIME,
    ]

    world.approve("canary", "after")
    assert [wait.reason for wait in world.go().waits] == [WaitReason.TIME]
    world.pass_time(60)
    result = world.go()
    assert (result.approvals, result.status) == (
        (Approval("prod", ApprovalPoint.BEFORE),),
        RunStatus.WAITING,
    )
    assert world.started == ["c2"]

    world.approve("prod", "before")
    assert world.go_on().status is RunStatus.SUCCEEDED
    assert world.started == ["c2", "c1", "c3"]


def test_s38_an_older_version_goes_back_in_the_order_of_the_stages() -> None:
    # An older resourceSnapshotIndex is a version like any other; the application reads it off the run.
    world = two_stages()
    for name in ("c1", "c2", "c3"):
        world.clusters[name] = seen(name, Phase.AVAILABLE, "newest", START)

    world.go_on()

    assert {name: fact.running for name, fact in world.clusters.items()} == {
        "c1": "newest",
        "c2": NEW,
        "c3": "newest",
    }


def test_s39_a_removed_cluster_keeps_its_resources_until_the_delete_stage_which_is_last() -> (
    None
):
    stages = [
        stage("none", env="none", before=True, after=True),
        stage("prod", env="prod"),
    ]
    world = World(begin(stages, C1, unscheduled=("c9",)))

    world.go()
    assert world.run.stages[0].was_skipped
    assert world.having(Phase.AVAILABLE) == {"c9"}
    world.pass_time(20)
    world.go()
    assert (world.having(Phase.AVAILABLE), world.having(Phase.REMOVING)) == (
        {"c1"},
        {"c9"},
    )

    assert world.go_on().status is RunStatus.SUCCEEDED
    assert world.having(Phase.REMOVED) == {"c9"}


def test_s40_scaling_a_placement_ends_the_run_and_needs_a_new_one() -> None:
    # `rules/lifecycle.md#staged-update-runs`: what is picked is compared with what the run froze.
    world = of_three(1)
    world.go()
    world.today = begin([ALL], C1, C2)

    assert world.go().run.reasons == (StageReason("other-stages", ("all",)),)


def test_s41_max_concurrency_of_three_starts_three_together() -> None:
    assert [action.cluster for action in of_three(3).go().actions] == ["c1", "c2", "c3"]


def test_s41_max_concurrency_of_70_percent_starts_two_of_three() -> None:
    answer = of_three("70%").go()

    assert answer.actions == (
        StartUpdate("c1", NEW, UpdateReason.ADD),
        StartUpdate("c2", NEW, UpdateReason.ADD),
    )
    assert answer.concurrency == StageConcurrency(
        stage="all", clusters=3, limit=2, running=2, done=0
    )
    assert answer.concurrency.waiting == 1


def test_s42_initialise_places_nothing_and_a_stop_holds_even_what_is_approved() -> None:
    world = replace(two_stages(), state=RunState.INITIALIZE)
    assert (world.go().status, world.started) == (RunStatus.INITIALISED, [])

    world.state = RunState.RUN
    world.go_on()
    world.approve("canary", "after")
    world.pass_time(60)
    world.go()
    world.state = RunState.STOP
    world.approve("prod", "before")
    assert (world.go().status, world.started) == (RunStatus.STOPPED, ["c2"])

    world.state = RunState.RUN
    assert world.go_on().status is RunStatus.SUCCEEDED


def test_s43_what_is_placed_stays_until_a_run_comes_to_it() -> None:
    world = two_stages()
    for name in ("c1", "c2", "c3"):
        world.clusters[name] = seen(name, Phase.AVAILABLE, "old", START)

    world.go()

    assert (world.having(Phase.AVAILABLE), world.started) == ({"c1", "c3"}, ["c2"])


def test_s44_a_cluster_that_left_is_done_with_and_may_still_hold_resources() -> None:
    # `rules/lifecycle.md#terms`: it is listed; the released system waits for its removal.
    world = World(begin([ALL], C1, unscheduled=("gone", "lost", "there")))
    del world.clusters["gone"]
    world.reach("lost", reachable=False)

    world.go_on()

    assert world.run.outcome is StagedRunOutcome.SUCCEEDED
    assert (world.removed, world.run.may_still_hold) == (["there"], ("gone", "lost"))


def test_a_cluster_that_has_the_version_is_done_and_takes_no_place() -> None:
    world = of_three(1)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, NEW, START - timedelta(days=1))

    answer = world.go()

    assert [action.cluster for action in answer.actions] == ["c2"]
    assert answer.concurrency == StageConcurrency(
        stage="all", clusters=3, limit=1, running=1, done=1
    )


def test_a_failed_cluster_keeps_its_place_and_is_tried_again_after_5_then_10_seconds() -> (
    None
):
    world = replace(of_three(1), failures={"c1": 2}, seconds=1)
    world.go()
    world.pass_time(1)

    failed = world.go()
    assert failed.waits == (
        Wait(WaitReason.RETRY, "all", ("c1",), START + timedelta(seconds=6)),
    )
    assert failed.actions == ()
    assert failed.requeue_at == START + timedelta(seconds=6)

    world.pass_time(5)
    assert world.go().actions == (StartUpdate("c1", NEW, UpdateReason.RETRY, 2),)
    world.pass_time(1)
    assert world.go().waits[0].until == START + timedelta(seconds=17)

    world.pass_time(10)
    assert world.go().actions == (StartUpdate("c1", NEW, UpdateReason.RETRY, 3),)
    assert world.go_on().status is RunStatus.SUCCEEDED


def test_a_failure_counts_by_its_attempt_whatever_the_clock_of_the_worker_that_saw_it() -> (
    None
):
    world = of_three(1)
    world.go()
    before = world.now - timedelta(seconds=30)
    world.clusters["c1"] = seen("c1", Phase.FAILED, NEW, before, attempts=1)

    assert world.go().waits == (
        Wait(WaitReason.RETRY, "all", ("c1",), START + timedelta(seconds=5)),
    )

    world.now += timedelta(seconds=5)
    assert world.sync_result().actions == (
        StartUpdate("c1", NEW, UpdateReason.RETRY, 2),
    )
    world.run = world.sync_result().run
    assert world.sync_result().run.current.steps[0].failures == 1


def test_a_failed_cluster_can_be_retried_at_once() -> None:
    world = replace(of_three(1), failures={"c1": 1}, seconds=1)
    world.go()
    world.retries["c1"] = 0
    world.pass_time(1)
    assert world.go().actions == ()

    world.retries["c1"] = 1

    assert world.go().actions == (StartUpdate("c1", NEW, UpdateReason.RETRY, 2),)


def test_a_cluster_is_stuck_after_five_minutes() -> None:
    world = replace(of_three(2), seconds=1000)
    assert world.go().requeue_at == START + timedelta(minutes=5)
    world.now += timedelta(minutes=5)

    answer = world.go()

    assert (answer.status, answer.stuck) == (RunStatus.STUCK, ("c1", "c2"))


def test_an_unreachable_cluster_is_passed_over_until_it_is_back() -> None:
    world = of_three(1)
    world.reach("c1", reachable=False)

    held = world.go_on(times=20)
    assert world.started == ["c2", "c3"]
    assert (held.waits, held.status) == (
        (Wait(WaitReason.UNREACHABLE, "all", ("c1",)),),
        RunStatus.STUCK,
    )

    world.reach("c1", reachable=True)
    assert world.go_on().status is RunStatus.SUCCEEDED


def test_a_cluster_without_a_driver_is_not_monitored() -> None:
    world = of_three(3)
    without = seen("c1", Phase.NOT_STARTED, "", START, unreachable_since=START)
    world.clusters["c1"] = without._replace(has_driver=False)

    held = world.go_on(times=20)

    assert held.waits == (Wait(WaitReason.NOT_MONITORED, "all", ("c1",)),)
    assert run_sentences(held) == [
        "Not monitored: c1. The run continues once a driver is set."
    ]


def test_a_cluster_lost_in_the_middle_keeps_its_place() -> None:
    world = of_three(1)
    world.go()
    world.reach("c1", reachable=False)

    world.go_on(times=20)

    assert world.started == ["c1"]


def test_what_was_seen_of_a_cluster_before_it_was_lost_does_not_count() -> None:
    world = of_three(1)
    world.go()
    world.clusters["c1"] = seen(
        "c1", Phase.AVAILABLE, NEW, world.now, unreachable_since=START
    )

    assert world.go().concurrency == StageConcurrency(
        stage="all", clusters=3, limit=1, running=1, done=0
    )


def test_a_cluster_that_is_being_cleared_is_left_alone_until_it_is_empty() -> None:
    world = of_three(1)
    world.clusters["c1"] = seen("c1", Phase.REMOVING, "old", START)

    assert world.go().actions == (StartUpdate("c2", NEW, UpdateReason.ADD),)


def test_what_is_in_flight_when_it_stops_is_observed_to_its_end() -> None:
    world = of_three(2)
    world.go()
    world.state = RunState.STOP

    stopping = world.go()
    world.pass_time(20)
    stopped = world.go()

    assert (stopping.status, stopping.waits[0].names) == (
        RunStatus.STOPPING,
        ("c1", "c2"),
    )
    assert stopped.status is RunStatus.STOPPED
    assert stopped.concurrency == StageConcurrency(
        stage="all", clusters=3, limit=2, running=0, done=2
    )
    assert world.started == ["c1", "c2"]


def test_a_timed_wait_counts_from_the_last_cluster_and_again_from_a_stop() -> None:
    world = World(begin([stage("canary", env="canary", wait="1h")], C2))
    world.go()
    world.pass_time(20)
    done_at = world.now
    world.now += timedelta(minutes=10)
    assert world.go().waits == (
        Wait(WaitReason.TIME, "canary", until=done_at + timedelta(hours=1)),
    )

    world.state = RunState.STOP
    world.go()
    stopped_at = world.now
    world.now += timedelta(minutes=50)
    world.go()
    world.state = RunState.RUN
    assert world.go().waits[0].until == stopped_at + timedelta(hours=1)

    world.state = RunState.STOP
    world.now += timedelta(minutes=5)
    world.go()
    world.state = RunState.RUN
    assert world.go().waits[0].until == world.now + timedelta(hours=1)

    world.now += timedelta(hours=1)
    assert world.go().status is RunStatus.SUCCEEDED


def test_a_timed_wait_can_be_skipped_only_while_it_lasts() -> None:
    world = World(begin([stage("canary", env="canary", wait="1h")], C2))
    world.skipped["canary"] = world.now
    world.go_on(times=4)
    assert world.run.outcome is None

    assert world.run.current.updated_at
    world.skipped["canary"] = world.run.current.updated_at

    assert world.go().status is RunStatus.SUCCEEDED


def test_what_is_approved_before_it_was_requested_counts_for_nothing() -> None:
    world = World(
        begin([stage("prod", env="prod", before=True)], C1),
        now=START + timedelta(seconds=1),
    )
    world.approvals[Approval("prod", ApprovalPoint.BEFORE)] = START

    assert world.go().approvals == (Approval("prod", ApprovalPoint.BEFORE),)


def test_an_approval_that_was_taken_cannot_be_taken_back() -> None:
    world = World(begin([stage("prod", env="prod", before=True)], C1))
    world.go()
    world.approve("prod", "before")
    world.go()
    world.approvals.clear()

    assert world.go_on().status is RunStatus.SUCCEEDED


def test_a_cluster_that_is_changed_meanwhile_fails_the_run() -> None:
    world = of_three(1)
    world.go()
    world.clusters["c1"] = seen("c1", Phase.APPLYING, "of another run", world.now)

    assert world.go().run.reasons == (StageReason("taken-over", ("c1",)),)


def test_what_a_run_found_on_a_cluster_may_come_back_by_another_run_that_started_it_later() -> (
    None
):
    world = of_three(1)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)
    world.go()
    brings_back = StagedRunPlan(
        (Stage("prod", (ClusterStep("c1", "old", NEW, 2, world.now),)),),
        world.run.deletions,
    )
    world.clusters["c1"] = seen("c1", Phase.APPLYING, "old", world.now)

    assert world.sync_result().run.outcome is None
    world.others = (brings_back,)
    assert world.sync_result().run.reasons == (StageReason("taken-over", ("c1",)),)


def test_what_another_run_had_started_before_takes_nothing_over() -> None:
    world = of_three(1)
    earlier = ClusterStep("c1", "old", NEW, 1, world.now - timedelta(seconds=1))
    world.others = (StagedRunPlan((Stage("prod", (earlier,)),), world.run.deletions),)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)

    assert world.go().actions == (StartUpdate("c1", NEW, UpdateReason.UPDATE),)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)
    assert world.sync_result().run.outcome is None


def test_starts_are_compared_by_their_sequence_not_by_the_clocks_of_two_workers() -> (
    None
):
    ahead, behind = (START + timedelta(seconds=30 * sign) for sign in (1, -1))
    earlier = ClusterStep("c1", "old", NEW, 1, ahead)
    world = of_three(1)
    world.others = (StagedRunPlan((Stage("prod", (earlier,)),), world.run.deletions),)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)
    world.go()
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)
    assert world.sync_result().run.outcome is None

    later = ClusterStep("c1", "old", NEW, 3, behind)
    world.others = (StagedRunPlan((Stage("prod", (later,)),), world.run.deletions),)
    world.clusters["c1"] = seen("c1", Phase.APPLYING, "old", world.now)
    assert world.sync_result().run.reasons == (StageReason("taken-over", ("c1",)),)


def test_a_start_is_repeated_until_the_cluster_shows_it() -> None:
    world = of_three(1)
    world.clusters["c1"] = seen("c1", Phase.AVAILABLE, "old", START)
    first = world.sync_result()

    world.run = first.run
    world.now += timedelta(seconds=30)

    assert (
        world.sync_result().actions
        == first.actions
        == (StartUpdate("c1", NEW, UpdateReason.UPDATE),)
    )


def test_a_failed_removal_is_tried_again() -> None:
    world = replace(World(begin([ALL], unscheduled=("z",))), failures={"z": 1})

    assert world.go_on().status is RunStatus.SUCCEEDED
    assert world.removed == ["z", "z"]
