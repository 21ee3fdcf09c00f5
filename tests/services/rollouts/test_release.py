"""Deletion with Abandon: clusters whose driver acts on it release the objects, others are not called."""

from collections.abc import Mapping
from typing import Any

import pytest

from clusters.drivers.base import DriverUnavailable, Removed
from clusters.drivers.simulated.driver import SimulatedDriver
from placements.engine.rollout.state import Phase
from placements.models import Binding, ClusterUpdate, Leftover, Placement, Rollout
from placements.services import rollout_state
from placements.services.placements import delete_placement
from placements.services.rollouts import worker
from placements.services.rollouts.queries import clusters_in, names_in, report_of
from tests.rows import spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db
ABANDON: Mapping[str, Any] = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxUnavailable": 1},
    "deleteStrategy": {"propagationPolicy": "Abandon"},
}


class Released:
    """Replaces the calls of drivers that act on Abandon."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_down = False

    def release(self, placement: str, **_options: Any) -> Removed:
        self.calls.append(placement)
        if self.is_down:
            raise DriverUnavailable("no answer in time", code="timeout")
        return Removed(existed=True)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Released:
    """Make the simulated driver count as one that acts on it."""
    releases = Released()
    monkeypatch.setattr(worker, "ACTING_DRIVERS", ("simulated",))
    monkeypatch.setattr(rollout_state, "ACTING_DRIVERS", ("simulated",))
    monkeypatch.setattr(SimulatedDriver, "release", releases.release)
    return releases


def begun(strategy: Mapping[str, Any] = ABANDON) -> World:
    return settled_world(3, spec(strategy=dict(strategy)))


def test_abandoned_objects_are_released_on_all_clusters_at_once(
    released: Released,
) -> None:
    world = begun()
    released.is_down = True
    assert not delete_placement("web", by=None, now=world.now)
    world.work()

    assert (
        released.calls == ["web"] * 3
    )  # maxUnavailable is 1: nothing becomes unavailable
    assert set(Binding.objects.values_list("phase", flat=True)) == {Phase.REMOVING}
    run = Rollout.objects.get(is_deletion=True)
    phases = {
        cluster.phase for cluster in clusters_in(run, names_in(run), report_of(run))
    }
    assert phases == {"releasing"}

    released.is_down = False
    world.pass_time(60)
    assert not Placement.objects.exists()
    assert not Leftover.objects.exists()
    run.refresh_from_db()
    assert run.ended_reason == "released on all clusters; the resources stay there"
    assert {
        cluster.phase for cluster in clusters_in(run, names_in(run), report_of(run))
    } == {"released"}
    assert set(
        ClusterUpdate.objects.filter(rollout=run).values_list("what", flat=True)
    ) == {"release"}


@pytest.mark.nightly
def test_simulated_clusters_are_not_called() -> None:
    world = begun()
    delete_placement("web", by=None, now=world.now)
    world.work()

    assert not Placement.objects.exists()
    assert Leftover.objects.count() == 3


@pytest.mark.nightly
def test_deletion_without_abandon_releases_nothing(released: Released) -> None:
    world = begun({"type": "RollingUpdate"})
    delete_placement("web", by=None, now=world.now)
    world.pass_time(120)

    assert not Placement.objects.exists()
    assert released.calls == []
