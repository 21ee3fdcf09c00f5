"""Evictions on simulated clusters: budgets, removal at once, who is picked again (S45, S46)."""

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from placements.engine.rollout.actions import Remove
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, ClusterUpdate, Decision, Placement, Rollout
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.evictions import evict
from placements.services.disruption.queries import event_line
from placements.services.placements import delete_placement
from placements.services.rollout_state import load_rollout_context
from placements.services.rollouts.controller import running_rollout, start_actions
from placements.services.rollouts.operations import ActionNotAllowed, abandon_cluster
from placements.services.rollouts.starts import RunChanged
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.world import World, settled_world, starts

pytestmark = pytest.mark.django_db


def budget(name: str = "web", **spec: Any) -> dict[str, Any]:
    """Write a disruption budget."""
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementDisruptionBudget",
        "metadata": {"name": name},
        "spec": spec,
    }


def settled(clusters: int, wanted: dict[str, Any], **limit: Any) -> World:
    """Return a world with a placement that is on its clusters, and a budget where there is one."""
    world = settled_world(clusters, wanted)
    if limit:
        save_budget(budget(**limit), by=None, now=world.now)
    return world


def test_s45_a_tainted_cluster_is_left_and_not_picked_again() -> None:
    world = settled(3, spec())
    cordon(["c001"], by=None, now=world.now)

    row = evict("web", "c001", by=None, now=world.now)

    assert (row.outcome, row.why) == ("executed", "no-budget")
    assert world.phases()["c001"] == Phase.REMOVING
    world.work()
    world.run(until=world.is_settled)
    assert world.available() == ["c000", "c002"]
    assert not Binding.objects.filter(cluster_name="c001").exists()
    assert Decision.objects.latest("pk").kept_count == 2
    assert Placement.objects.get().placed_count == 2


def test_s45_without_a_taint_it_is_picked_again() -> None:
    world = settled(3, spec())

    evict("web", "c001", by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)

    assert world.available() == ["c000", "c001", "c002"]
    assert [what for _, cluster, what in starts() if cluster == "c001"] == [
        "add",
        "remove",
        "add",
    ]


@pytest.mark.parametrize(
    ("limit", "outcome", "numbers"),
    [
        ({"minAvailable": 3}, "not-executed", (3, 3, 0, 0)),
        ({"minAvailable": 2}, "executed", (3, 3, 0, 1)),
    ],
)
def test_s46_pick_all_over_three(
    limit: Any, outcome: str, numbers: tuple[int, ...]
) -> None:
    world = settled(3, spec(), **limit)

    row = evict("web", "c001", by=None, now=world.now)

    assert row.outcome == outcome
    assert row.numbers == dict(
        zip(("available", "total", "wanted", "allowed"), numbers, strict=True)
    )
    assert "3 of 3 available" in event_line(row)


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        ({"maxUnavailable": 0}, "not-executed"),
        ({"maxUnavailable": 1}, "executed"),
        ({"maxUnavailable": "33%"}, "executed"),
        ({"maxUnavailable": "0%"}, "not-executed"),
        ({"minAvailable": 3}, "not-executed"),
        ({"minAvailable": 2}, "executed"),
        ({"minAvailable": "100%"}, "not-executed"),
        ({"minAvailable": "66%"}, "executed"),
        ({"minAvailable": "67%"}, "not-executed"),
    ],
)
def test_s46_pick_n_of_three(limit: Any, outcome: str) -> None:
    world = settled(3, pick_n_spec(3), **limit)

    assert evict("web", "c001", by=None, now=world.now).outcome == outcome
    assert (world.phases()["c001"] == Phase.REMOVING) == (outcome == "executed")


def test_s46_the_freed_slot_is_reported_unfilled_where_the_cluster_is_tainted() -> None:
    world = settled(3, pick_n_spec(3), maxUnavailable=1)
    cordon(["c001"], by=None, now=world.now)

    evict("web", "c001", by=None, now=world.now)
    world.work()
    world.run(until=lambda: "c001" not in world.phases())

    placement = Placement.objects.get()
    assert (placement.is_fulfilled, placement.placed_count) == (False, 2)


@pytest.mark.nightly
def test_two_in_a_row_do_not_count_the_same_cluster() -> None:
    world = settled(3, pick_n_spec(3), maxUnavailable=1)

    outcomes = [
        evict("web", name, by=None, now=world.now).outcome for name in ("c000", "c001")
    ]

    assert outcomes == ["executed", "not-executed"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wanted", "cluster", "outcome", "why"),
    [
        (
            spec({"placementType": "PickFixed", "clusterNames": ["c000"]}),
            "c000",
            "invalid",
            "pick-fixed",
        ),
        (pick_n_spec(1), "c000", "invalid", "not-there"),
    ],
)
def test_what_cannot_be_evicted(
    wanted: Any, cluster: str, outcome: str, why: str
) -> None:
    world = settled(2, wanted)

    row = evict("web", cluster, by=None, now=world.now)

    assert (row.outcome, row.why) == (outcome, why)
    assert evict("nowhere", cluster, by=None, now=world.now).why == "no-placement"


@pytest.mark.nightly
def test_a_run_of_its_own_carries_the_removal() -> None:
    world = settled(2, spec())
    cordon(["c001"], by=None, now=world.now)

    evict("web", "c001", by=None, now=world.now)

    run = Rollout.objects.get(state="running")
    assert (run.number, run.trigger, run.waves) == (2, "evicted from c001", [["c001"]])
    update = ClusterUpdate.objects.get(rollout=run)
    assert (update.what, update.outcome) == ("remove", "")
    world.work()
    world.run(until=world.is_settled)
    update.refresh_from_db()
    assert update.outcome == "removed"
    assert Placement.objects.get().decisions.latest("number").leaves == ["c001"]


@pytest.mark.nightly
def test_an_eviction_joins_the_run_that_is_under_way() -> None:
    world = settled(4, spec())
    world.change()
    world.work()
    run = Rollout.objects.get(state="running")

    evict("web", "c000", by=None, now=world.now)

    rows = ClusterUpdate.objects.filter(rollout=run, cluster_name="c000").order_by("pk")
    assert list(rows.values_list("what", "outcome")) == [
        ("update", "superseded"),
        ("remove", ""),
    ]


@pytest.mark.nightly
def test_a_look_that_began_before_the_eviction_starts_nothing() -> None:
    world = settled(2, spec())
    cordon(["c001"], by=None, now=world.now)
    placement = Placement.objects.get()
    before = load_rollout_context(placement, now=world.now)
    evict("web", "c001", by=None, now=world.now)
    run = running_rollout(placement)

    assert run is not None
    with pytest.raises(RunChanged):
        start_actions(run, before, [Remove("c001")], now=world.now)


@pytest.mark.nightly
def test_an_eviction_leaves_an_event_and_a_budget_is_refused_that_does_not_go_with_the_type() -> (
    None
):
    world = settled(2, spec())

    evict("web", "c001", by=None, now=world.now)

    event = Event.objects.get(verb="evicted")
    assert event.after == {"cluster": "c001", "outcome": "executed", "why": "no-budget"}
    with pytest.raises(InvalidManifest, match="not allowed for placementType"):
        save_budget(budget(maxUnavailable=1), by=None, now=world.now)


@pytest.mark.nightly
def test_a_staged_placement_is_evicted_without_a_run() -> None:
    world = settled(2, pick_n_spec(1))
    placement = Placement.objects.get()
    placement.document["spec"]["strategy"] = {"type": "External"}
    placement.save()
    cluster = next(iter(world.phases()))
    cordon([cluster], by=None, now=world.now)

    evict("web", cluster, by=None, now=world.now)
    world.work()

    assert cluster not in world.phases()
    assert world.is_settled()
    assert Binding.objects.get().state == BindingState.SCHEDULED


@pytest.mark.servers
def test_a_deletion_may_forget_a_cluster_out_of_reach_after_a_quarter_of_an_hour() -> (
    None
):
    world = settled(2, spec())
    with pytest.raises(ActionNotAllowed, match="not being deleted"):
        abandon_cluster("web", "c001", by=None, now=world.now)
    world.inject("c001", {"kind": "unreachable"})
    world.run(
        until=lambda: MemberCluster.objects.get(name="c001").verdict != "",
        seconds=600,
        step=10,
    )
    delete_placement("web", by=None, now=world.now)
    world.work()
    with pytest.raises(ActionNotAllowed, match="may come back"):
        abandon_cluster("web", "c001", by=None, now=world.now)
    world.pass_time(5)
    with pytest.raises(ActionNotAllowed, match="can be reached"):
        abandon_cluster("web", "c000", by=None, now=world.now)
    assert list(world.phases()) == ["c001"]
    world.now += timedelta(minutes=15)

    abandon_cluster("web", "c001", by=None, now=world.now)
    world.work()

    assert not Placement.objects.exists()
    after = {"cluster": "c001", "mayStillHold": ["c001"]}
    assert Event.objects.get(verb="force-removed").after == after
