"""The status of a placement while it is rolled out, and what a run says of itself."""

from typing import Any

import pytest
from django.db.models import F

from placements.models import Binding, Placement, Rollout
from placements.services.placements import save_placement
from placements.services.results import OperationResult
from placements.services.rollouts import operations
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.rollouts.queries import (
    clusters_in,
    latest_run,
    names_in,
    progress_words,
    report_of,
    run_named,
)
from placements.services.status import manifest_of, status_of
from tests.rows import config_map, pick_n_spec, saved, spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db


def reasons(status: dict[str, Any]) -> list[str]:
    """Return the reasons of the conditions of a status."""
    return [condition["reason"] for condition in status["conditions"]]


def placed() -> tuple[World, Placement]:
    """Make three clusters with a placement that has come to all of them."""
    world = settled_world(3, one_at_a_time())
    placement = Placement.objects.get(name="web")
    placement.refresh_from_db()
    return world, placement


@pytest.mark.nightly
def test_a_finished_rollout_is_available_everywhere() -> None:
    world, placement = placed()

    status = status_of(placement, now=world.now)

    assert reasons(status)[1:] == [
        "RolloutStarted",
        "NoOverrideSpecified",
        "WorkSynchronized",
        "ApplySucceeded",
        "ResourceAvailable",
    ]
    assert [one["observedResourceIndex"] for one in status["placementStatuses"]] == [
        "0",
        "0",
        "0",
    ]
    assert {condition["observedGeneration"] for condition in status["conditions"]} == {
        placement.revision
    }


@pytest.mark.nightly
def test_a_cluster_that_waits_shows_what_it_really_runs() -> None:
    world, placement = placed()

    world.change()
    world.work()
    status = status_of(placement, now=world.now)

    assert status["observedResourceIndex"] == "1"
    assert [one["observedResourceIndex"] for one in status["placementStatuses"]] == [
        "1",
        "0",
        "0",
    ]
    waiting = status["placementStatuses"][1]["conditions"][-1]
    assert (waiting["reason"], waiting["status"]) == ("RolloutNotStartedYet", "False")
    assert (
        "c000 is available. On revision 1, waiting for revision 2. Cannot take down any cluster ("
        in waiting["message"]
    )


@pytest.mark.nightly
def test_a_cluster_that_refuses_names_the_objects() -> None:
    world, placement = placed()
    for name in world.phases():
        world.inject(name, {"kind": "refuse", "objectName": "bad"})
    world.apply(config_map("bad"))
    world.work()
    world.pass_time(5)

    failing = status_of(placement, now=world.now)["placementStatuses"][0]

    assert failing["conditions"][-1]["reason"] == "NotAllWorkHaveBeenApplied"
    assert [
        (failed_placement["kind"], failed_placement["name"])
        for failed_placement in failing["failedPlacements"]
    ] == [("ConfigMap", "bad")]


@pytest.mark.nightly
def test_what_was_got_can_be_put_back_in_the_middle_of_a_run() -> None:
    world, placement = placed()
    world.change()
    world.work()

    again = save_placement(manifest_of(placement), by=None, now=world.now)

    assert again.result is OperationResult.UNCHANGED


@pytest.mark.nightly
def test_the_status_runs_few_queries(django_assert_max_num_queries) -> None:
    world, placement = placed()
    world.change()
    world.work()

    with django_assert_max_num_queries(10):
        status_of(placement, now=world.now)


@pytest.mark.nightly
def test_a_run_reads_its_answer_back_and_names_its_versions() -> None:
    world, placement = placed()
    world.change()
    world.work()
    run = latest_run(placement)
    assert run is not None
    report = report_of(run)

    rows = {
        cluster.cluster: cluster for cluster in clusters_in(run, names_in(run), report)
    }

    assert (rows["c000"].phase, rows["c000"].running, rows["c000"].wave) == (
        "settling",
        "revision 2",
        1,
    )
    assert (rows["c002"].phase, rows["c002"].running, rows["c002"].wanted) == (
        "available",
        "revision 1",
        "revision 2",
    )
    assert rows["c002"].block == "update-floor"
    assert progress_words(run) == "0 of 3 clusters updated"


@pytest.mark.nightly
def test_a_run_that_has_ended_keeps_how_each_cluster_came_out() -> None:
    world, _ = placed()
    world.change()
    world.work()
    world.run(until=world.is_settled)

    run = run_named("web", 1)

    rows = clusters_in(run, names_in(run), report_of(run))
    assert [(row.cluster, row.phase, row.running) for row in rows] == [
        ("c000", "available", "revision 1"),
        ("c001", "available", "revision 1"),
        ("c002", "available", "revision 1"),
    ]
    assert progress_words(run) == ""


@pytest.mark.nightly
def test_a_rollback_and_a_new_begin_say_what_they_come_from() -> None:
    world, _ = placed()
    world.change()
    world.work()
    world.run(until=world.is_settled)

    operations.roll_back("web", 0, by=None, now=world.now)
    world.work()
    assert Rollout.objects.get(state="running").trigger == "rolled back to revision 1"
    operations.stop("web", by=None, now=world.now)
    operations.restart("web", by=None, now=world.now)
    world.work()

    assert Rollout.objects.get(state="running").trigger == "started again"


def test_nothing_is_rolled_back_before_there_are_resources() -> None:
    saved("web", pick_n_spec(1))

    with pytest.raises(ActionNotAllowed, match="no resource snapshot yet"):
        operations.roll_back("web", 0, by=None, now=World(1).now)


@pytest.mark.nightly
def test_a_refused_rollback_names_only_older_snapshots() -> None:
    world, _ = placed()
    with pytest.raises(ActionNotAllowed, match=r"no earlier revision to roll back to$"):
        operations.roll_back("web", 9, by=None, now=world.now)
    world.change()
    world.work()

    with pytest.raises(ActionNotAllowed, match=r"older ones: 0$"):
        operations.roll_back("web", 1, by=None, now=world.now)


@pytest.mark.nightly
def test_what_is_being_deleted_is_not_rolled_back() -> None:
    world, _ = placed()
    Placement.objects.update(deleting_since=world.now)

    with pytest.raises(ActionNotAllowed, match="being deleted"):
        operations.roll_back("web", 0, by=None, now=world.now)


def test_a_placement_without_clusters_has_only_the_first_condition() -> None:
    World(0)
    placement = saved("web", spec())

    assert len(status_of(placement)["conditions"]) == 1
    assert not Binding.objects.exists()


def test_while_a_decision_is_pending_there_are_no_clusters_and_older_conditions() -> (
    None
):
    world, placement = placed()
    Placement.objects.update(scheduled="Unknown", generation=F("generation") + 1)
    placement.refresh_from_db()

    status = status_of(placement, now=world.now)

    scheduled, *others = status["conditions"]
    assert (scheduled["status"], scheduled["reason"]) == ("Unknown", "SchedulePending")
    assert scheduled["observedGeneration"] == placement.spec_generation
    assert {other["observedGeneration"] for other in others} == {
        placement.spec_generation - 1
    }
    assert status["placementStatuses"] == []
