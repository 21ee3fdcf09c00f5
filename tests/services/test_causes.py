"""Every decision and rollout says what caused it, and what left as well as what joined."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from clusters.models import FleetChange, MemberCluster
from clusters.operations.edit import change_labels, cordon, uncordon
from clusters.operations.heartbeat import observe
from placements.models import Decision, Placement, Rollout
from placements.services.disruption.evictions import evict
from placements.services.overrides.operations import delete_override, save_override
from placements.services.placements import save_placement
from placements.services.workqueue import enqueue_scheduling
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    person,
    pick_n_spec,
    placement_document,
    run_due,
    saved,
    simulated,
    spec,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.world import settled_world

pytestmark = pytest.mark.django_db


@pytest.fixture
def ana() -> User:
    return person("ana", "operator")


def edited(name: str, wanted: dict[str, Any], by: User | None) -> None:
    """Save a placement again."""
    save_placement(placement_document(name, wanted), by=by, now=NOW)


def cause() -> tuple[str, str]:
    """Return the trigger of the latest decision, and who caused it."""
    row = Decision.objects.latest("pk")
    return row.trigger, row.triggered_by


def test_a_decision_names_the_field_that_was_edited(ana: User) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(1))

    edited("web", pick_n_spec(2), ana)
    run_due()

    assert cause() == ("numberOfClusters 1 → 2", "ana")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (pick_n_spec(1, tolerations=[{"key": "a"}]), "tolerations added"),
        (
            pick_n_spec(3, tolerations=[{"key": "a"}], affinity={}),
            "numberOfClusters 1 → 3, tolerations added and 1 more",
        ),
        ({**pick_n_spec(1), "revisionHistoryLimit": 3}, "revisionHistoryLimit added"),
    ],
)
def test_an_edit_is_called_by_what_it_changed(
    wanted: dict[str, Any], words: str
) -> None:
    saved("web", pick_n_spec(1))
    Placement.objects.update(observed_generation=1)

    edited("web", wanted, None)

    assert Placement.objects.get().trigger == words


def test_a_user_who_edits_is_not_forgotten_when_the_fleet_changes_before_the_cycle(
    ana: User,
) -> None:
    all_joined("a", "b", "c")
    placement = decided("web", pick_n_spec(1))

    edited("web", pick_n_spec(2), ana)
    for _ in range(2):
        enqueue_scheduling([placement.pk], trigger="c joined")
    run_due()

    assert cause() == ("numberOfClusters 1 → 2; c joined", "ana")
    enqueue_scheduling([placement.pk], trigger="d joined")
    placement.refresh_from_db()
    assert (placement.trigger, placement.triggered_by) == ("d joined", "system")


@pytest.mark.nightly
def test_a_cluster_that_falls_silent_is_the_cause() -> None:
    simulated("a")
    for seconds in range(0, 600, 10):
        if seconds == 60:
            MemberCluster.objects.update(connection={"fault": "silent"})
            FleetChange.objects.all().delete()
        observe(now=NOW + timedelta(seconds=seconds))

    assert FleetChange.objects.get().reason == "a: Ready → Not ready"


def test_an_edit_of_a_cluster_is_the_cause_with_who_did_it(ana: User) -> None:
    joined("a", region="east")
    FleetChange.objects.all().delete()

    cordon(["a"], by=ana, now=NOW)
    uncordon(["a"], by=None, now=NOW)
    change_labels(["a"], put={"region": "west", "tier": "one"}, by=ana, now=NOW)

    assert list(
        FleetChange.objects.order_by("pk").values_list("reason", flat=True)
    ) == [
        "a: cordoned by ana",
        "a: uncordoned",
        "a: label region east → west, label tier (none) → one by ana",
    ]


@pytest.mark.servers
def test_several_clusters_with_one_change_share_the_cause() -> None:
    all_joined("a", "b")
    FleetChange.objects.all().delete()

    cordon(["a", "b"], by=None, now=NOW)

    assert FleetChange.objects.get().reason == "2 clusters: cordoned"


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_rollout_for_an_override_names_the_override(ana: User) -> None:
    world = settled_world(2, spec())
    override = for_clusters("tier", rule(annotate(a="b")))

    save_override(override, by=ana, now=world.now)
    world.work()

    run = Rollout.objects.latest("pk")
    assert (run.trigger, run.started_by) == (
        "ClusterResourceOverride tier created",
        "ana",
    )
    world.run(until=world.is_settled)
    delete_override("ClusterResourceOverride", "", "tier", by=ana, now=world.now)
    world.work()
    assert (
        Rollout.objects.latest("pk").trigger == "ClusterResourceOverride tier deleted"
    )


@pytest.mark.servers_only
@pytest.mark.servers
def test_an_eviction_shows_what_left_as_well_as_what_joined(ana: User) -> None:
    world = settled_world(3, pick_n_spec(2))
    leaving = sorted(world.phases())[0]
    cordon([leaving], by=None, now=world.now)

    evict("web", leaving, by=ana, now=world.now)
    world.pass_time()

    row = Decision.objects.latest("pk")
    assert (row.trigger, row.triggered_by) == (f"evicted from {leaving}", "ana")
    assert (row.leaves, row.leaves_count, row.unscheduled_count) == ([leaving], 1, 0)
    assert row.joins_count == 1
    world.run(until=world.is_settled)
    edited("web", pick_n_spec(1), ana)
    world.pass_time()
    assert leaving not in Decision.objects.latest("pk").leaves
