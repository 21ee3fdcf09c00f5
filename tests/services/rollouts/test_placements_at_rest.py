"""A placement rests where nothing is to be done; one that was stopped can be deleted too."""

import pytest

from clusters.models import MemberCluster
from placements.engine.rollout.state import Phase
from placements.models import Placement
from placements.services.disruption.evictions import evict
from placements.services.placements import delete_placement
from placements.services.rollouts import operations, worker
from tests.rows import spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db


def settled() -> World:
    """Return a placement that is on its two clusters."""
    return settled_world(2, spec())


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_stopped_placement_is_deleted() -> None:
    world = settled()
    world.change()
    world.work()
    operations.stop("web", by=None, now=world.now)

    delete_placement("web", by=None, now=world.now)

    world.run(until=lambda: not Placement.objects.exists(), seconds=60)


@pytest.mark.nightly
def test_a_placement_without_a_run_is_not_looked_at_again_and_again() -> None:
    world = settled()
    world.inject("c001", {"kind": "notReady"})
    world.run(until=lambda: world.phases()["c001"] == Phase.APPLIED, seconds=200)
    world.pass_time()

    assert world.is_settled()
    assert Placement.objects.get().rollout_requeue_at is None
    world.inject("c001")
    world.run(until=lambda: world.phases()["c001"] == Phase.AVAILABLE, seconds=200)


@pytest.mark.nightly
@pytest.mark.parametrize(("many", "is_soon"), [(20, False), (1, True)])
def test_what_is_applied_on_many_clusters_is_recorded_a_moment_later(
    monkeypatch: pytest.MonkeyPatch, many: int, is_soon: bool
) -> None:
    monkeypatch.setattr(worker, "MANY_CLUSTERS", many)
    world = settled()
    world.change()
    world.work()

    assert Phase.APPLIED in world.phases().values()
    requeue_at = Placement.objects.get().rollout_requeue_at
    assert requeue_at is not None
    assert (requeue_at == world.now + worker.PROGRESS_SYNC) is is_soon
    world.run(until=world.is_settled)


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_placement_that_rests_begins_when_something_changes(is_stopped: bool) -> None:
    world = settled()
    if is_stopped:
        world.change()
        world.work()
        operations.stop("web", by=None, now=world.now)
        world.pass_time()
        operations.restart("web", by=None, now=world.now)

    world.change()
    world.work()

    assert not world.is_settled()
    world.run(until=world.is_settled)
    assert Placement.objects.get().rollout_requeue_at is None


@pytest.mark.servers
def test_a_deletion_ends_when_the_last_cluster_leaves_the_fleet() -> None:
    world = settled()
    world.inject("c001", {"kind": "unreachable"})
    evict("web", "c001", by=None, now=world.now)
    delete_placement("web", by=None, now=world.now)
    world.pass_time(20)
    assert world.phases()["c001"] == Phase.REMOVING

    MemberCluster.objects.filter(name="c001").delete()

    world.run(until=lambda: not Placement.objects.exists(), seconds=60)
