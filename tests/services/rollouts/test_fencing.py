"""A worker that was stopped beyond its lease changes nothing any more, and orphans are removed."""

from datetime import timedelta

import pytest

from clusters.driver_factory import driver_for
from clusters.drivers.base import DriverFenced, Version
from clusters.models import MemberCluster
from fleetui.models import Event
from placements.models import Binding, Leftover, Placement
from placements.services.placements import delete_placement
from placements.services.rollouts import worker
from placements.services.rollouts.removals import remove_orphans
from placements.services.rollouts.worker import LEASE, claim, prepare_calls
from tests.rows import config_map, spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db


def placed() -> list[str]:
    """Return the clusters that hold something of the placement."""
    return [
        row.name
        for row in MemberCluster.objects.order_by("name")
        if driver_for(row).observe("web").of("web") is not None
    ]


@pytest.mark.nightly
def test_a_call_is_not_made_when_its_lease_is_over() -> None:
    world = World(clusters=3)
    world.place("web", spec())
    Binding.objects.update(next_call_at=world.now, call_lease_expires_at=None)
    calls = prepare_calls(claim(now=world.now), now=world.now)
    late = world.now + LEASE

    answers = list(worker.call_clusters(calls, clock=lambda: late, threads=0))

    assert {answer for _, answer in answers} == {worker.NotCalled.LEASE_WAS_OVER}


@pytest.mark.nightly
def test_a_late_apply_is_refused_after_the_placement_was_deleted() -> None:
    world = settled_world(3, spec())
    world.change()
    world.work()
    Binding.objects.update(
        next_call_at=world.now, call_lease_expires_at=None, phase="applying"
    )
    stopped = prepare_calls(claim(now=world.now), now=world.now)
    world.now += LEASE + timedelta(seconds=1)
    world.run(until=world.is_settled)
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())

    # The worker passed the check of its lease before it was stopped.
    answers = list(
        worker.call_clusters(stopped, clock=lambda: world.now - LEASE * 2, threads=0)
    )

    assert len(answers) == 3
    assert all(isinstance(answer, DriverFenced) for _, answer in answers)
    assert placed() == []


def test_a_restored_database_catches_up_with_the_fences_of_the_clusters() -> None:
    world = settled_world(2, spec())
    for row in MemberCluster.objects.all():
        state = driver_for(row).observe("web", inventory=True).fences
        assert state is not None
        held = driver_for(row)
        held.apply(
            Version("newer", "web", (config_map("x"),), fence=state["web"] + 1000)
        )
    world.change()
    world.work()
    world.run(until=world.is_settled)

    binding = Binding.objects.order_by("pk")[0]
    observed = (
        driver_for(MemberCluster.objects.get(name=binding.cluster_name))
        .observe("web")
        .of("web")
    )
    assert observed is not None
    assert observed.version == binding.applied_version


def test_what_no_binding_wants_is_removed_and_recorded() -> None:
    world = settled_world(2, spec())
    row = MemberCluster.objects.get(name="c001")
    driver_for(row).apply(Version("v1", "ghost", (config_map("x"),), fence=7))

    remove_orphans(now=world.now, threads=0)

    assert driver_for(row).observe("ghost").of("ghost") is None
    assert placed() == ["c000", "c001"]
    event = Event.objects.get(verb="orphan removed")
    assert (event.name, event.after) == ("ghost", {"cluster": "c001"})


@pytest.mark.nightly
def test_what_an_abandoned_placement_left_stays() -> None:
    world = World(clusters=2)
    world.place(
        "web", spec(strategy={"deleteStrategy": {"propagationPolicy": "Abandon"}})
    )
    world.run(until=world.is_settled)
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())

    remove_orphans(now=world.now, threads=0)

    assert placed() == ["c000", "c001"]
    assert Leftover.objects.count() == 2


def test_the_inventory_is_taken_every_two_minutes() -> None:
    world = World(clusters=2)

    first = remove_orphans(now=world.now, threads=0)
    soon = remove_orphans(now=world.now + timedelta(seconds=119), threads=0)
    later = remove_orphans(now=world.now + timedelta(seconds=121), threads=0)

    assert (first, soon, later) == (2, 0, 2)
