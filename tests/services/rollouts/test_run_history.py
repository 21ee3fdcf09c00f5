"""What a run leaves behind for its charts: the states of the clusters from sync to sync."""

import pytest

from placements.explain.run_pages import Part
from placements.models import Rollout, RolloutSample, StagedRun
from placements.services.rollouts.queries import parts_of_steps
from placements.services.run_history import history_of, moments_of
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db

PICK_ALL = {
    "resourceSelectors": [
        {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    ],
    "strategy": {"rollingUpdate": {"maxUnavailable": 1}},
}


@pytest.fixture
def world() -> World:
    """Place `web` on four clusters, then change its resources, up to the end."""
    world = settled_world(4, PICK_ALL)
    world.change()
    world.run(until=lambda: Rollout.objects.count() == 2)
    world.run(until=world.is_settled)
    return world


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_points_show_an_update_in_place_from_its_first_start_to_its_end() -> None:
    run = Rollout.objects.get(number=2)
    points = list(RolloutSample.objects.filter(rollout=run).order_by("pk"))

    first, last = points[0], points[-1]
    assert (first.at, first.old, first.new, first.unavailable) == (
        run.started_at,
        3,
        0,
        1,
    )
    assert (last.at, last.old, last.new, last.unavailable) == (run.ended_at, 0, 4, 0)
    assert {(point.number, point.min_available) for point in points} == {(4, 3)}
    assert min(point.old + point.new for point in points) == 3
    assert {
        point.old + point.new + point.unavailable + point.removing for point in points
    } == {4}


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_only_the_first_rollout_adds_and_each_cluster_starts_once() -> None:
    placed, updated = map(history_of, Rollout.objects.order_by("number"))

    assert (placed.adds, updated.adds) == (True, False)
    starts = updated.starts
    assert sorted(start.cluster for start in starts) == ["c000", "c001", "c002", "c003"]
    assert all(start.ended is not None for start in starts)


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_look_that_finds_nothing_new_leaves_no_point(world: World) -> None:
    before = RolloutSample.objects.count()

    world.pass_time(60)

    assert RolloutSample.objects.count() == before


def test_a_staged_run_counts_what_is_observed_and_not_what_it_planned() -> None:
    world = StagedWorld({"canary": ["c000", "c001"], "prod": ["c002"]},
        stage("canary", after=True, most=2), stage("prod"))  # fmt: skip
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    world.inject("c001", {"kind": "notReady"})
    world.go_on(60)

    run = StagedRun.objects.get(name="one")
    moments = [counts for _, counts in moments_of(run, since=world.now)]
    assert (moments[0].available, moments[0].number) == (0, 3)
    assert 2 in [moment.available for moment in moments]
    assert (moments[-1].new, moments[-1].unavailable) == (1, 1)
    assert parts_of_steps(run, world.plan("one"), now=world.now) == {
        "c000": Part.UPDATED,
        "c001": Part.NOT_AVAILABLE,
        "c002": Part.PENDING,
    }


def test_a_cluster_that_has_the_revision_already_is_updated_before_its_turn() -> None:
    world = StagedWorld({"canary": ["c000"], "prod": ["c001"]},
        stage("canary", after=True), stage("prod"))  # fmt: skip
    world.place("web", staged_spec())
    for name in ("one", "two"):
        world.begin(name)
        world.go_on(60)
        if name == "one":
            world.approve("one", "canary")
            world.go_on(60)

    run = StagedRun.objects.get(name="two")
    assert run.is_running
    parts = parts_of_steps(run, world.plan("two"), now=world.now)
    assert parts["c001"] is Part.UPDATED
