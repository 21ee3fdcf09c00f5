"""Staged runs on simulated clusters (lifecycle S37 to S44)."""

import pytest

from clusters.operations.edit import change_labels, finish_leaving, leave
from placements.engine.rollout.state import Phase
from placements.models import (
    ApprovalRequest,
    Binding,
    Placement,
    ResourceSnapshot,
    Rollout,
    StagedRun,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts import operations
from tests.rows import placement_document, spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.django_db
CANARY_FIRST = {"canary": ["c001"], "prod": ["c000", "c002"]}
ALL = {"prod": ["c000", "c001", "c002"]}


def canary_world() -> StagedWorld:
    """Return S37's world: a canary with a wait and an approval, then the rest behind another approval."""
    world = StagedWorld(
        CANARY_FIRST,
        stage("canary", after=True, wait="30s"),
        stage("prod", before=True, most=2),
    )
    world.place("web", staged_spec())
    return world


def finished(world: StagedWorld, run: str) -> None:
    """Advance the clock until a run has succeeded."""
    world.run(until=lambda: world.status(run) == "succeeded")


def test_s37_nothing_is_placed_before_any_run() -> None:
    world = canary_world()
    world.go_on()

    assert not ResourceSnapshot.objects.exists()
    assert not Rollout.objects.exists()
    assert set(world.phases().values()) == {Phase.NOT_STARTED}


def test_s37_stages_follow_each_other_behind_waits_and_approvals() -> None:
    world = canary_world()

    world.begin("one")
    world.go_on()
    assert world.indices() == {"c000": None, "c001": 0, "c002": None}
    assert world.waits("one") == ["approval-after", "time"]
    world.approve("one", "canary")
    world.go_on(10)
    assert world.waits("one") == ["time"]
    world.go_on(30)
    assert world.waits("one") == ["approval-before"]
    assert world.indices() == {"c000": None, "c001": 0, "c002": None}
    world.approve("one", "prod")
    finished(world, "one")

    assert world.indices() == {"c000": 0, "c001": 0, "c002": 0}
    assert len(world.available()) == 3
    names = sorted(map(str, ApprovalRequest.objects.select_related("run")))
    assert names == ["one-after-canary", "one-before-prod"]


def test_s37_what_changes_later_waits_for_the_next_run() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", staged_spec())
    world.begin("one")
    finished(world, "one")

    world.change()
    world.work()
    world.go_on()
    assert ResourceSnapshot.objects.count() == 1
    world.begin("two")
    finished(world, "two")

    assert set(world.indices().values()) == {1}


@pytest.mark.servers
def test_s38_a_run_with_an_older_index_rolls_back_in_the_order_of_the_stages() -> None:
    world = StagedWorld(
        CANARY_FIRST, stage("canary"), stage("prod", before=True, most=2)
    )
    world.place("web", staged_spec())
    for name in ("one", "two"):
        world.change()
        world.begin(name)
        world.go_on()
        world.approve(name, "prod")
        finished(world, name)
    assert set(world.indices().values()) == {1}

    world.begin("back", index="0")
    world.go_on()

    assert world.indices() == {"c000": 1, "c001": 0, "c002": 1}
    world.approve("back", "prod")
    finished(world, "back")
    assert set(world.indices().values()) == {0}


def test_s39_scaled_in_clusters_keep_what_they_have_until_the_delete_stage() -> None:
    world = StagedWorld(
        CANARY_FIRST, stage("canary", before=True), stage("prod", before=True, most=2)
    )
    fixed = {"placementType": "PickFixed", "clusterNames": ["c000", "c001", "c002"]}
    world.place("web", staged_spec(fixed))
    world.begin("one")
    for name in ("canary", "prod"):
        world.approve("one", name)
        world.go_on()
    assert world.status("one") == "succeeded"

    fixed = {**fixed, "clusterNames": ["c000", "c002"]}
    save_placement(
        placement_document("web", staged_spec(fixed)), by=None, now=world.now
    )
    world.work()
    world.go_on()
    assert "c001" in world.available()
    world.begin("two")
    world.go_on(3)

    assert world.waits("two") == ["approval-before"]
    assert world.plan("two").stages[0].was_skipped
    assert "c001" in world.available()
    world.approve("two", "prod")
    finished(world, "two")
    assert list(world.phases()) == ["c000", "c002"]


def test_s40_another_number_needs_a_run_to_be_carried_out() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", staged_spec({"placementType": "PickN", "numberOfClusters": 1}))
    world.begin("one")
    finished(world, "one")

    more = staged_spec({"placementType": "PickN", "numberOfClusters": 3})
    save_placement(placement_document("web", more), by=None, now=world.now)
    world.work()
    world.go_on()
    assert len(world.available()) == 1
    world.begin("two")
    finished(world, "two")
    assert len(world.available()) == 3
    less = staged_spec({"placementType": "PickN", "numberOfClusters": 2})
    save_placement(placement_document("web", less), by=None, now=world.now)
    world.work()
    world.go_on()
    assert len(world.available()) == 3
    world.begin("three")
    finished(world, "three")

    assert len(world.phases()) == 2
    assert StagedRun.objects.filter(plan__policy_snapshot="0").count() == 3


@pytest.mark.parametrize(("most", "together"), [(3, 3), ("70%", 2), (1, 1)])
def test_s41_as_many_start_together_as_the_stage_says(
    most: int | str, together: int
) -> None:
    world = StagedWorld(ALL, stage("prod", most=most))
    world.place("web", staged_spec())

    world.begin("one")

    assert list(world.phases().values()).count(Phase.NOT_STARTED) == 3 - together
    finished(world, "one")


@pytest.mark.servers
def test_s42_a_run_is_prepared_let_go_stopped_and_let_go_again() -> None:
    world = StagedWorld(ALL, stage("prod", before=True, most=3))
    world.place("web", staged_spec())

    world.begin("one", state="Initialize")
    world.go_on()
    assert (world.status("one"), ResourceSnapshot.objects.count()) == ("initialised", 1)
    world.set("one", "Run")
    world.set("one", "Stop")
    world.approve("one", "prod")
    world.go_on()
    assert world.status("one") == "stopped"
    assert set(world.phases().values()) == {Phase.NOT_STARTED}
    world.set("one", "Run")

    finished(world, "one")
    assert len(world.available()) == 3


def test_s43_switching_to_staged_keeps_what_is_placed() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", spec())
    world.run(until=world.is_settled)

    save_placement(placement_document("web", staged_spec()), by=None, now=world.now)
    world.change()
    world.work()
    world.go_on()

    assert set(world.indices().values()) == {0}
    assert len(world.available()) == 3
    world.begin("one")
    finished(world, "one")
    assert set(world.indices().values()) == {1}


def test_s43_a_rolling_run_under_way_ends_when_stages_take_over() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", spec())

    save_placement(placement_document("web", staged_spec()), by=None, now=world.now)
    world.work()

    assert Rollout.objects.get().state == "superseded"


@pytest.mark.servers
def test_s44_what_is_on_a_departed_cluster_stays_there_and_its_row_goes_with_the_next_run() -> (
    None
):
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", staged_spec())
    world.begin("one")
    finished(world, "one")

    leave(["c002"], by=None, now=world.now)
    world.work()
    finish_leaving(now=world.now)
    world.work()
    assert Binding.objects.get(cluster_name="c002").state == "Unscheduled"
    world.begin("two")
    finished(world, "two")

    assert list(world.phases()) == ["c000", "c001"]
    assert world.plan("two").may_still_hold == ("c002",)


@pytest.mark.nightly
def test_a_run_waits_for_the_scheduler_and_then_begins() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    save_placement(placement_document("web", staged_spec()), by=None, now=world.now)

    world.begin("one")

    finished(world, "one")


@pytest.mark.nightly
def test_a_run_that_cannot_begin_says_why() -> None:
    world = StagedWorld(
        {**CANARY_FIRST, "other": ["c003"]}, stage("canary"), stage("prod")
    )
    world.place("web", staged_spec())

    world.begin("one")

    assert (world.status("one"), world.why("one")) == ("failed", ["in-no-stage"])
    assert not ResourceSnapshot.objects.exists()


@pytest.mark.nightly
def test_a_cluster_that_moves_to_another_stage_ends_the_run() -> None:
    world = StagedWorld(CANARY_FIRST, stage("canary"), stage("prod", before=True))
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()

    change_labels(
        ["c000"], put={"stage": "canary"}, replaces=True, by=None, now=world.now
    )
    world.go_on(61)

    assert (world.status("one"), world.why("one")) == ("failed", ["other-stages"])


@pytest.mark.nightly
def test_a_failed_cluster_is_tried_again_and_holds_its_place() -> None:
    world = StagedWorld(CANARY_FIRST, stage("canary"), stage("prod"))
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.place("web", staged_spec())

    world.begin("one")
    world.go_on(20)

    assert world.waits("one") == ["retry"]
    assert world.plan("one").stages[0].steps[0].failures == 3
    assert world.indices()["c000"] is None
    world.inject("c001")
    finished(world, "one")


@pytest.mark.nightly
def test_a_later_run_takes_a_cluster_over_and_the_earlier_one_ends() -> None:
    world = StagedWorld(ALL, stage("prod", most=3))
    world.place("web", staged_spec())
    world.inject("c000", {"kind": "refuse", "objectName": "web"})
    world.begin("one")
    world.go_on(3)

    world.change()
    world.begin("two")
    world.go_on(3)

    assert (world.status("one"), world.why("one")) == ("failed", ["taken-over"])
    world.inject("c000")
    finished(world, "two")
    assert set(world.indices().values()) == {1}


@pytest.mark.nightly
@pytest.mark.parametrize("after", [0, 1])
def test_a_run_that_brings_back_what_another_replaces_takes_its_cluster_for_good(
    after: int,
) -> None:
    world = StagedWorld(ALL, stage("prod"))
    world.place("web", staged_spec())
    world.begin("first")
    finished(world, "first")
    world.change()
    world.begin("newer")
    world.go_on(after)

    world.begin("back", index="0")

    assert (world.status("newer"), world.why("newer")) == ("failed", ["taken-over"])
    finished(world, "back")
    assert set(world.indices().values()) == {0}


@pytest.mark.nightly
def test_two_runs_of_one_version_do_not_take_clusters_from_each_other() -> None:
    world = StagedWorld(ALL, stage("prod"))
    world.place("web", staged_spec())

    world.begin("one")
    world.begin("two")

    finished(world, "one")
    assert world.status("two") == "succeeded"


@pytest.mark.nightly
def test_a_paused_placement_starts_nothing() -> None:
    world = StagedWorld(ALL, stage("prod"))
    world.place("web", staged_spec())
    operations.pause("web", by=None, now=world.now)

    world.begin("one")
    world.go_on()
    assert set(world.phases().values()) == {Phase.NOT_STARTED}
    operations.resume("web", by=None, now=world.now)

    finished(world, "one")


@pytest.mark.servers_only
@pytest.mark.servers
def test_deleting_the_placement_ends_its_runs() -> None:
    world = StagedWorld(ALL, stage("prod", before=True))
    world.place("web", staged_spec())
    world.begin("one")

    delete_placement("web", by=None, now=world.now)
    world.work()

    assert not Placement.objects.exists()
    assert (world.status("one"), world.why("one")) == ("failed", ["being-deleted"])
