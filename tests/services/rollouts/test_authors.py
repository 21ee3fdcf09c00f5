"""Revisions and rollouts have the name of who applied what they come from."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleetui.audit import SYSTEM
from placements.models import Placement, PolicySnapshot, ResourceSnapshot, Rollout
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.operations import roll_back, unpin
from placements.services.scheduling import schedule_due
from placements.services.workqueue import enqueue_scheduling
from tests.rows import config_map, person, placement_document
from tests.services.rollouts.world import World, one_at_a_time

pytestmark = pytest.mark.django_db


def settled_world(by: User) -> World:
    world = World(2)
    document = placement_document("web", one_at_a_time())
    save_placement(document, by=by, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    return world


def apply(world: World, value: str, *, by: User | None) -> None:
    apply_resources(
        [config_map("settings", data={"value": value})], by=by, now=world.now
    )


def authors() -> tuple[str, str, str]:
    """Return who made the newest policy and resources and started the newest rollout."""
    policy = PolicySnapshot.objects.get(is_latest=True)
    resources = ResourceSnapshot.objects.get(is_latest=True)
    return (
        policy.created_by,
        resources.created_by,
        Rollout.objects.latest("number").started_by,
    )


def test_what_a_user_applied_has_the_name_of_the_user() -> None:
    ann, bob = person("ann", "operator"), person("bob", "operator")
    world = settled_world(ann)
    assert authors() == ("ann", "ann", "ann")

    apply(world, "changed", by=bob)
    world.work()
    world.run(until=world.is_settled)

    assert authors() == ("ann", "bob", "bob")
    roll_back("web", 0, by=ann, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    assert authors() == ("ann", "ann", "ann")
    unpin("web", by=bob, now=world.now)
    world.work()
    assert authors() == ("ann", "bob", "bob")


def test_a_change_of_the_fleet_in_between_does_not_take_the_name() -> None:
    world = settled_world(person("ann", "operator"))

    apply(world, "changed", by=person("bob", "operator"))
    enqueue_scheduling([Placement.objects.get().pk], trigger="cluster c001 changed")
    world.work()

    assert authors() == ("ann", "bob", "bob")


def test_a_rollout_of_new_resources_names_their_author_whatever_was_triggered_meanwhile() -> (
    None
):
    world = settled_world(person("ann", "operator"))
    apply(world, "changed", by=person("bob", "operator"))

    schedule_due(now=world.now)
    Placement.objects.update(trigger="cluster c001 changed", triggered_by=SYSTEM)

    world.work()

    assert authors() == ("ann", "bob", "bob")


@pytest.mark.usefixtures("collected_static")
def test_pages_and_rest_name_the_author(admin_client: Client) -> None:
    world = settled_world(person("ann", "operator"))
    apply(world, "changed", by=person("bob", "operator"))
    world.work()

    history = admin_client.get("/placements/web/history/").content.decode()
    rollout = admin_client.get("/rollouts/web/2/").content.decode()

    assert "bob" in history
    assert "bob" in rollout
    snapshots = json.loads(
        admin_client.get("/api/v1/placements/web/resource-snapshots").content
    )["items"]
    assert {snapshot["number"]: snapshot["createdBy"] for snapshot in snapshots} == {
        0: "ann",
        1: "bob",
    }
    assert (
        json.loads(admin_client.get("/api/v1/rollouts/web/2").content)["startedBy"]
        == "bob"
    )
