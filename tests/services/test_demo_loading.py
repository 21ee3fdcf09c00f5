"""The demo of nine is loaded with its past, is marked, and goes without a trace of what is real."""

from datetime import datetime

import pytest

from clusters.models import MemberCluster
from placements.models import Binding, Decision, Placement, Resource
from placements.services import scheduling
from placements.services.demo import load
from placements.services.demo.load import Loaded, NameTakenError, load_demo, remove_demo
from placements.services.fleet_events import enqueue_affected_placements
from tests.rows import NOW, joined, member_document, placed, run_due
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db


@pytest.mark.nightly
def test_nine_come_decided_with_their_past() -> None:
    load_demo(9, by=None, now=NOW)

    web = Decision.objects.filter(placement_name="web").latest("number")
    assert (web.joins, web.leaves) == (
        ["smartfish", "oldbadger"],
        ["bravelion", "jumpingcat"],
    )
    assert web.trigger == "env spread added"
    numbers = {
        placement.name: (placement.placed_count, placement.is_fulfilled)
        for placement in Placement.objects.all()
    }
    assert numbers == {
        "web": (5, True),
        "ledger": (3, False),
        "cache": (3, True),
        "config": (3, True),
        "batch": (9, True),
    }
    assert "flyingpenguin" in placed(Placement.objects.get(name="cache"))
    assert not any(placement.is_due for placement in Placement.objects.all())


def test_workers_do_not_decide_while_the_past_is_played_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claimed: list[int] = []

    def decide(placement_id: int, *, now: datetime) -> object:
        claimed.extend(scheduling.claim_due(now=NOW))
        return real(placement_id, now=now)

    real = scheduling.schedule_placement
    monkeypatch.setattr(load, "schedule_placement", decide)

    load_demo(9, by=None, now=NOW)

    assert claimed == []
    assert not Placement.objects.filter(lease_expires_at__isnull=False).exists()


@pytest.mark.nightly
def test_everything_is_marked_and_goes_again() -> None:
    joined("mine", region="east")
    loaded = load_demo(9, by=None, now=NOW)

    assert MemberCluster.objects.filter(is_demo=True).count() == 9
    assert remove_demo(by=None, now=NOW) == loaded

    assert [cluster.name for cluster in MemberCluster.objects.all()] == ["mine"]
    assert not Placement.objects.exists()
    assert not Resource.objects.exists()


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_demo_that_was_carried_out_goes_at_once() -> None:
    load_demo(4, by=None, now=NOW)
    Binding.objects.update(state="Bound", phase="available", applied_version="v")

    load_demo(4, by=None, now=NOW)

    assert not Placement.objects.filter(deleting_since__isnull=False).exists()


@pytest.mark.nightly
def test_what_a_demo_placed_on_a_real_cluster_is_removed_there_first() -> None:
    load_demo(9, by=None, now=NOW)
    joined("mine")
    enqueue_affected_placements()
    run_due()
    Binding.objects.update(state="Bound", phase="available", applied_version="v")

    remove_demo(by=None, now=NOW)

    left = Placement.objects.get()
    assert (left.name, left.deleting_since) == ("batch", NOW)
    assert placed(left) == ["mine"]


@pytest.mark.nightly
def test_another_demo_takes_its_place() -> None:
    load_demo(9, by=None, now=NOW)

    load_demo(4, by=None, now=NOW)

    assert MemberCluster.objects.count() == 4


@pytest.mark.servers
def test_a_real_cluster_of_that_name_refuses_the_demo() -> None:
    load_demo(4, by=None, now=NOW)
    joined("nimblefox")

    with pytest.raises(NameTakenError, match="nimblefox"):
        load_demo(9, by=None, now=NOW)

    assert MemberCluster.objects.filter(is_demo=True).count() == 4
    assert MemberCluster.objects.get(name="nimblefox").document == member_document(
        "nimblefox"
    )


def test_nothing_to_remove_is_nothing() -> None:
    assert remove_demo(by=None, now=NOW) == Loaded(0, 0, 0)


@pytest.mark.nightly
def test_unhealthy_clusters_of_the_demo_are_not_eligible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("placements.services.demo.large._TROUBLED_SIZE", 0)
    load_demo(100, by=None, now=NOW)

    verdicts = set(
        MemberCluster.objects.exclude(verdict="").values_list("verdict", flat=True)
    )
    assert verdicts == {"staleHeartbeat", "unhealthy"}
    assert 1 <= MemberCluster.objects.exclude(verdict="").count() <= 6


@pytest.mark.parametrize("size", [4, 9, pytest.param(100, marks=pytest.mark.nightly)])
def test_an_update_can_be_watched_and_paused(size: int) -> None:
    world = World(0)
    load_demo(size, by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    deployments = Resource.objects.filter(kind="Deployment", is_demo=True)
    updated = [
        {**deployment.content, "spec": {"replicas": 7}} for deployment in deployments
    ]

    world.apply(*updated)
    world.work()
    seconds = world.run(until=world.is_settled)

    assert 20 <= seconds <= 45
