"""Documents come back as they were written, key by key, on every database (`docs/adr/0006`)."""

import json
from typing import Any

import pytest

from clusters.models import MemberCluster
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.models import Event
from placements.models import (
    DisruptionBudget,
    Placement,
    Resource,
    ResourceSnapshotPart,
    StagedRun,
    StagedStrategy,
    StalePick,
)
from placements.services.disruption.budgets import save_budget
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.staged_runs import STAGED_RUN, save_run, save_strategy
from tests.rows import NOW, config_map, namespace, spec
from tests.services.rollouts.staged import (
    StagedWorld,
    run_document,
    stage,
    staged_spec,
    strategy_document,
)
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def backwards(document: dict[str, Any]) -> dict[str, Any]:
    """Write the keys of a document in the order of the alphabet turned round."""
    return {key: _turned(document[key]) for key in sorted(document, reverse=True)}


def _turned(value: Any) -> Any:
    return backwards(value) if isinstance(value, dict) else value


def test_a_placement_keeps_the_order_of_its_keys() -> None:
    document = backwards(
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1",
            "kind": "ClusterResourcePlacement",
            "metadata": {"name": "web", "labels": {"b": "1", "aaaa": "2"}},
            "spec": spec({"placementType": "PickN", "numberOfClusters": 1}),
        }
    )

    save_placement(document, by=None, now=NOW)

    assert json.dumps(Placement.objects.get().document) == json.dumps(document)
    assert not StalePick.objects.exists()


def test_a_resource_keeps_the_order_of_its_keys_through_a_change_of_many() -> None:
    shops = [backwards(namespace(name, tier="one", b="2")) for name in ("shop", "bank")]
    changed = [
        backwards(namespace(name, tier="two", b="2")) for name in ("shop", "bank")
    ]

    apply_resources(shops, by=None, now=NOW)
    apply_resources(changed, by=None, now=NOW)

    written = {
        document["metadata"]["name"]: json.dumps(document) for document in changed
    }
    assert {
        row.name: json.dumps(row.content) for row in Resource.objects.all()
    } == written


def test_a_staged_run_and_what_the_events_show_of_it_keep_the_order_of_their_keys() -> (
    None
):
    world = StagedWorld({"all": ["c000"]}, stage("all"))
    world.place("web", staged_spec())
    document = backwards(run_document("one"))

    save_run(document, by=None, now=world.now)

    event = Event.objects.filter(kind=STAGED_RUN).earliest("id")
    assert json.dumps(StagedRun.objects.get().document) == json.dumps(document)
    assert json.dumps(event.after) == json.dumps(document)


def test_a_strategy_keeps_the_order_of_its_keys() -> None:
    document = backwards(strategy_document(stage("all")))

    save_strategy(document, by=None, now=NOW)

    assert json.dumps(StagedStrategy.objects.get().document) == json.dumps(document)


@pytest.mark.nightly
def test_a_resource_snapshot_keeps_the_order_of_the_keys_of_what_it_copies() -> None:
    world, greeting = (
        World(1),
        backwards(config_map("greeting", data={"z": "1", "bb": "2"})),
    )
    world.apply(greeting)

    world.place("web", spec())

    [part] = ResourceSnapshotPart.objects.all()
    copied = {
        manifest["metadata"]["name"]: json.dumps(manifest)
        for manifest in part.manifests
    }
    assert copied["greeting"] == json.dumps(greeting)


def test_a_budget_keeps_the_order_of_its_keys() -> None:
    budget = backwards(
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": "ClusterResourcePlacementDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1},
        }
    )

    save_budget(budget, by=None, now=NOW)

    assert json.dumps(DisruptionBudget.objects.get().document) == json.dumps(budget)


def test_a_cluster_keeps_the_order_of_its_keys() -> None:
    document = backwards(
        {
            "apiVersion": "cluster.kubernetes-fleet.io/v1",
            "kind": "MemberCluster",
            "metadata": {"name": "a", "labels": {"z": "1", "bb": "2"}},
            "spec": {"identity": {"name": "agent", "kind": "User"}},
        }
    )

    upsert_clusters([ClusterSpec(document)], by=None, now=NOW)

    assert json.dumps(MemberCluster.objects.get().document) == json.dumps(document)
