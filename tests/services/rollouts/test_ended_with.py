"""What ends with a rollout, a placement or the demo; and evictions from a placement that starts nothing."""

from collections import Counter

import pytest

from clusters.models import MemberCluster
from fleetui.models import Event
from placements.engine.disruption import EvictionReason
from placements.models import (
    Binding,
    ClusterUpdate,
    Drain,
    Eviction,
    Placement,
    Rollout,
)
from placements.services.dashboard.queries import counts
from placements.services.demo.load import remove_demo
from placements.services.disruption.drains import drain
from placements.services.disruption.evictions import evict
from placements.services.rollouts.operations import (
    ActionNotAllowed,
    pause,
    resume,
    roll_back,
    stop,
    why_not_roll_back,
)
from placements.services.rollouts.queries import Part, parts_of
from tests.problems import found
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db


@pytest.mark.nightly
def test_a_rollout_counts_removed_clusters_apart_from_updated_ones() -> None:
    world = World(3)
    world.place("web", pick_n_spec(3))
    world.run(until=lambda: len(world.available()) == 3)
    world.place("web", pick_n_spec(2))
    world.run(
        until=lambda: Rollout.objects.filter(
            number=2, state=Rollout.State.FINISHED
        ).exists()
    )

    first, second = (
        Counter(parts_of(run).values()) for run in Rollout.objects.order_by("number")
    )
    assert (first, second) == ({Part.UPDATED: 3}, {Part.REMOVED: 1})


@pytest.mark.nightly
def test_a_failure_of_a_namespaced_placement_needs_attention() -> None:
    world = World(2)
    for name in ("web", "a", "b", "c", "d", "e"):
        world.place(name, pick_n_spec(2))
    world.run(until=world.is_settled)
    Placement.objects.filter(name="web").update(namespace="shop", full_name="shop/web")
    Binding.objects.filter(placement__name="web", cluster_name="c000").update(
        phase="failed"
    )
    Binding.objects.exclude(placement__name="web").update(failure="unreachable")

    needs = {(facts.placement, facts.level) for facts in found(now=world.now)}
    assert ("shop/web", "failed") in needs, (
        "though more placements wait for one cluster"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("hold", [pause, stop])
def test_an_eviction_waits_for_a_paused_placement_as_a_drain_does(hold: object) -> None:
    world = World(3)
    world.place("web", pick_n_spec(2))
    if hold is pause:
        world.run(until=world.is_settled)
        pause("web", by=None, now=world.now)
    else:
        stop("web", by=None, now=world.now)
        world.pass_time(5)
    name = sorted(world.available())[0]

    refused = evict("web", name, by=None, now=world.now)

    assert (refused.outcome, refused.why) == (
        Eviction.Outcome.NOT_EXECUTED,
        EvictionReason.HELD,
    )
    assert Binding.objects.get(cluster_name=name).state == "Bound"
    if hold is pause:
        resume("web", by=None, now=world.now)
        assert (
            evict("web", name, by=None, now=world.now).outcome
            == Eviction.Outcome.EXECUTED
        )


@pytest.mark.nightly
def test_the_start_of_a_job_ends_with_the_rollout() -> None:
    world = World(1)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once", "namespace": "shop"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "a", "image": "a"}],
                }
            }
        },
    }
    world.apply(job)
    world.place("web", spec())
    world.run(until=world.is_settled)

    assert Rollout.objects.get().state == Rollout.State.FINISHED
    assert [
        cluster_update.outcome for cluster_update in ClusterUpdate.objects.all()
    ] == [ClusterUpdate.Outcome.AVAILABLE]


@pytest.mark.nightly
@pytest.mark.servers
def test_rollouts_and_drains_of_the_demo_end_with_it() -> None:
    world = World(3)
    world.place("web", spec())
    drain(["c000"], by=None, now=world.now)
    MemberCluster.objects.update(is_demo=True)
    Placement.objects.update(is_demo=True)
    assert not world.is_settled()

    remove_demo(by=None, now=world.now)

    assert not Placement.objects.exists()
    assert world.is_settled()
    assert not Rollout.objects.exists()
    assert not Drain.objects.exists()
    assert (found(now=world.now), counts().of_placements.waiting) == ([], 0)
    assert Event.objects.filter(verb="superseded").exists()


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_placement_without_an_older_snapshot_cannot_roll_back() -> None:
    world = settled_world(1, spec())
    placement = Placement.objects.get(name="web")
    assert why_not_roll_back(placement)
    with pytest.raises(
        ActionNotAllowed, match="has no earlier revision to roll back to"
    ):
        roll_back("web", 0, by=None, now=world.now)

    world.change()
    world.work()

    assert not why_not_roll_back(placement)
