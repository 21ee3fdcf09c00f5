"""*Applied* counts the clusters that have the wanted revision, wherever it is shown."""

import json
import re

import pytest
from django.test import Client

from placements.models import Placement
from placements.services.health import health_of
from placements.services.rollouts.operations import pause
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]


def applied(world: World, client: Client) -> tuple[int, int]:
    """Return on how many of how many clusters the page, REST and the status say that it is applied."""
    counts = health_of(Placement.objects.get(), now=world.now).counts
    page = client.get("/placements/web/").content.decode()
    found = re.search(r"(\d+) of (\d+) applied", page)
    assert found
    manifest = json.loads(client.get("/api/v1/placements/web").content)
    [listed] = json.loads(client.get("/api/v1/placements").content)["items"]
    assert manifest["status"]["health"]["counts"] == listed["health"]["counts"]
    of_rest = listed["health"]["counts"]
    numbers = (counts.applied, counts.wanted)
    assert (
        tuple(map(int, found.groups()))
        == numbers
        == (of_rest["applied"], of_rest["wanted"])
    )
    stated = [
        status
        for status in manifest["status"]["placementStatuses"]
        if is_applied(status)
    ]
    if not Placement.objects.get().is_staged:
        assert len(stated) == counts.applied
    return numbers


def is_applied(status: dict[str, list[dict[str, str]]]) -> bool:
    return any(
        (condition["type"], condition["status"]) == ("Applied", "True")
        for condition in status["conditions"]
    )


def test_an_older_revision_is_not_applied_yet(admin_client: Client) -> None:
    world = settled_world(3, one_at_a_time())
    assert applied(world, admin_client) == (3, 3)

    pause("web", by=None, now=world.now)
    world.change()
    world.work()

    assert applied(world, admin_client) == (0, 3)
    status = health_of(Placement.objects.get(), now=world.now)
    assert (status.summary, status.counts.available) == ("Paused (0 of 3 started)", 3)


def test_each_cluster_of_a_rollout_counts_once_it_has_the_wanted_revision(
    admin_client: Client,
) -> None:
    world = settled_world(3, one_at_a_time())

    world.change()
    world.work()
    seen = [applied(world, admin_client)[0]]
    while not world.is_settled():
        world.pass_time(1)
        seen.append(applied(world, admin_client)[0])

    assert seen == sorted(seen)
    assert set(seen) == {1, 2, 3}


def test_a_staged_placement_counts_what_its_run_or_the_next_one_wants(
    admin_client: Client,
) -> None:
    world = StagedWorld(
        {"one": ["c000"], "two": ["c001", "c002"]}, stage("one"), stage("two")
    )
    world.place("web", staged_spec())
    world.work()
    assert applied(world, admin_client) == (0, 3)
    world.begin("first")
    world.go_on(120)
    assert applied(world, admin_client) == (3, 3)

    world.change()
    world.work()
    assert applied(world, admin_client) == (0, 3)
    world.begin("second")
    assert applied(world, admin_client)[0] < 3
    world.go_on(120)
    assert applied(world, admin_client) == (3, 3)
