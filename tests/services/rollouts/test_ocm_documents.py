"""Placements of Open Cluster Management reach their clusters: with resources by annotation."""

from typing import Any

import pytest

from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.models import Placement, ResourceSnapshot, Rollout
from placements.services.placements import delete_placement, save_placement
from placements.services.status import manifest_of
from tests.ocm_documents import (
    NAMESPACE,
    STRATEGY,
    needs_proposal,
    ocm_document,
    proposed_document,
    regional,
    with_resources,
)
from tests.rows import member_document, placed
from tests.services.rollouts.world import QUICK, World, handed_to, starts

pytestmark = pytest.mark.django_db


def save(world: World, document: dict[str, Any]) -> Placement:
    """Save a document, and let time pass until it is rolled out."""
    save_placement(document, by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    return Placement.objects.get(name=document["metadata"]["name"])


def regions(sizes: dict[str, int]) -> World:
    """Make a world of simulated clusters in the regions of the proposal."""
    world = World(clusters=0)
    wanted = [
        ClusterSpec(member_document(*one), driver="simulated", connection=QUICK)
        for one in regional(sizes)
    ]
    upsert_clusters(wanted, by=None, now=world.now)
    observe(now=world.now)
    return world


@pytest.mark.servers_only
@pytest.mark.servers
@needs_proposal
@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_proposal_roll_out_as_they_stand(number: int) -> None:
    world = regions(
        {"us-east-1": 4, "us-west-1": 4, "cn-hangzhou": 4, "cn-shenzhen": 4}
    )

    placement = save(world, proposed_document(number))
    empty = ResourceSnapshot.objects.get(placement=placement).objects_count
    before = world.available("demo-placement")
    placement = save(world, with_resources(proposed_document(number), NAMESPACE))

    available = world.available("demo-placement")
    assert (empty, before, len(available)) == (0, [], 10)
    assert available == placed(placement)
    assert [set(handed_to(one, "demo-placement")) for one in available] == [
        {"Namespace", "Deployment"}
    ] * 10
    status = manifest_of(placement)["status"]
    assert status["numberOfSelectedClusters"] == 10
    assert {
        condition["type"]: condition["status"] for condition in status["conditions"]
    } == {
        "PlacementSatisfied": "True",
        "PlacementMisconfigured": "False",
        "RolloutStarted": "True",
        "Overridden": "True",
        "WorkSynchronized": "True",
        "Applied": "True",
        "Available": "True",
    }
    assert len(status["selectedResources"]) == 2


@pytest.mark.nightly
def test_the_strategy_is_that_of_the_annotation() -> None:
    world = World(clusters=3)
    one_by_one = {
        "rollingUpdate": {
            "maxUnavailable": 1,
            "maxSurge": 1,
            "unavailablePeriodSeconds": 2,
        }
    }
    save(
        world,
        with_resources(ocm_document(annotations={STRATEGY: one_by_one}), NAMESPACE),
    )
    before = len(starts("shop"))

    world.change()
    world.run(until=lambda: not world.is_settled())
    world.run(until=world.is_settled)

    seconds = [
        second for second, _, what in starts("shop")[before:] if what == "update"
    ]
    assert len(seconds) == len(set(seconds)) == 3


def test_a_staged_one_waits_for_its_runs() -> None:
    world = World(clusters=2)

    placement = save(
        world,
        with_resources(
            ocm_document(annotations={STRATEGY: {"type": "External"}}), NAMESPACE
        ),
    )

    assert placed(placement) == ["c000", "c001"]
    assert not Rollout.objects.exists()
    assert not ResourceSnapshot.objects.exists()


@pytest.mark.nightly
def test_deleting_takes_the_resources_away() -> None:
    world = World(clusters=2)
    save(world, with_resources(ocm_document(), NAMESPACE))

    delete_placement("shop", by=None, now=world.now)
    world.work()
    world.run(until=lambda: not Placement.objects.exists())

    assert world.phases("shop") == {}
