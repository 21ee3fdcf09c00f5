"""S44: a cluster leaves after a staged run and is back before the next; that run brings it what it lacks."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from clusters.models import MemberCluster, SimulatedPlacement
from clusters.operations.edit import finish_leaving, leave
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.errors import InvalidManifest
from placements.models import Binding
from placements.services.placements import save_placement
from tests.rows import member_document, placement_document, spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import QUICK

pytestmark = pytest.mark.django_db
NAMES = ["c000", "c001", "c002"]


class LeftWorld(StagedWorld):
    """The run `one` has placed something on three clusters; then c002 left with what it `held`."""

    def __init__(self) -> None:
        super().__init__({"prod": NAMES}, stage("prod", most=3))
        self.place("web", staged_spec())
        self.begin("one")
        self.finish("one")
        self.held: Mapping[str, Any] = held_by("c002")
        leave(["c002"], by=None, now=self.now)
        finish_leaving(now=self.now)
        self.work()
        self.pass_time()

    def rejoin(
        self, held: Mapping[str, Any] | None = None, *, clock: timedelta = timedelta()
    ) -> None:
        """Bring c002 back under its name, with what it holds, by a process with another clock."""
        wanted = ClusterSpec(
            member_document("c002", {"stage": "prod"}),
            driver="simulated",
            connection=QUICK,
        )
        upsert_clusters([wanted], by=None, now=self.now + clock)
        if held:
            cluster = MemberCluster.objects.get(name="c002")
            SimulatedPlacement.objects.create(
                cluster=cluster,
                placement_name="web",
                revision=1,
                is_held=True,
                content=held,
            )
        observe(now=self.now)
        self.work()

    def finish(self, run: str) -> None:
        """Advance the clock until a run has succeeded."""
        self.run(until=lambda: self.status(run) == "succeeded")

    def holding(self) -> dict[str, str]:
        """Return the version that each simulated cluster holds."""
        rows = SimulatedPlacement.objects.filter(placement_name="web").values_list(
            "cluster__name", "content"
        )
        return {name: content["held"]["version"] for name, content in rows}

    def changes(self) -> int:
        """Count how often c002 was changed since it is back, or ever where it came with its book."""
        return sum(count for _, count in held_by("c002")["changes"])


def held_by(cluster: str) -> dict[str, Any]:
    """Return the state of the placement on a simulated cluster."""
    row = SimulatedPlacement.objects.get(cluster__name=cluster, placement_name="web")
    content: dict[str, Any] = row.content
    return content


def test_s44_a_cluster_that_is_back_is_picked_again_before_any_run() -> None:
    world = LeftWorld()
    assert Binding.objects.get(cluster_name="c002").state == "Unscheduled"

    world.rejoin(world.held)

    assert Binding.objects.get(cluster_name="c002").state == "Bound"


def test_s44_rejoined_with_what_it_had_it_is_left_as_it_is() -> None:
    world = LeftWorld()

    world.rejoin(world.held)
    world.begin("two")
    world.finish("two")

    assert world.available() == NAMES
    assert world.plan("two").stages[0].cluster_names == tuple(NAMES)
    assert world.changes() == 1


def test_s44_rejoined_after_a_change_it_gets_the_new_version_with_the_others() -> None:
    world = LeftWorld()

    world.rejoin(world.held)
    world.change()
    world.begin("two")
    world.finish("two")

    assert set(world.indices().values()) == {1}
    assert set(world.holding().values()) == {
        Binding.objects.get(cluster_name="c000").applied_version
    }
    assert world.changes() == 2


def test_s44_rejoined_after_it_was_cleared_the_run_places_everything_again() -> None:
    world = LeftWorld()

    world.rejoin()
    world.begin("two")
    world.finish("two")

    assert world.available() == NAMES
    assert sorted(world.holding()) == NAMES
    assert len(set(world.holding().values())) == 1
    assert world.changes() == 1


def test_s44_that_it_rejoined_is_seen_whatever_the_clocks_say() -> None:
    world = LeftWorld()

    world.rejoin(clock=timedelta(seconds=-30))
    world.begin("two")
    world.finish("two")

    assert sorted(world.holding()) == NAMES
    assert world.changes() == 1


@pytest.mark.servers
def test_s44_rejoined_it_needs_a_run_as_there_is_no_way_back_to_rolling_updates() -> (
    None
):
    world = LeftWorld()
    world.rejoin()

    with pytest.raises(InvalidManifest, match="cannot go back to rolling updates"):
        save_placement(placement_document("web", spec()), by=None, now=world.now)
