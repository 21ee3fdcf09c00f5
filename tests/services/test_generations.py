"""`metadata.generation` rises with the spec alone, and an edit that decides nothing leaves *Scheduled*."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.join import ClusterSpec, upsert_clusters
from clusters.queries import manifest_of as cluster_manifest_of
from placements.models import Decision, Placement, PolicySnapshot, Resource
from placements.services.decisions.records import latest_decision
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.results import read_manifest
from placements.services.rollouts.operations import pause
from placements.services.rollouts.staged_runs import save_strategy
from placements.services.scheduling import schedule_due
from placements.services.status import manifest_of, scheduled_condition
from tests.rows import (
    NOW,
    all_joined,
    config_map,
    decided,
    member_document,
    namespace,
    pick_n_spec,
    run_due,
)

pytestmark = pytest.mark.django_db

Edit = Callable[[dict[str, Any]], Any]

EDITS_WITHOUT_DECISION: dict[str, tuple[Edit, int]] = {
    "strategy": (
        lambda one: one["spec"].update(
            strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
        ),
        2,
    ),
    "apply strategy": (
        lambda one: one["spec"].update(
            strategy={"applyStrategy": {"type": "ServerSideApply"}}
        ),
        2,
    ),
    "history limit": (lambda one: one["spec"].update(revisionHistoryLimit=5), 2),
    "labels": (lambda one: one["metadata"].update(labels={"team": "shop"}), 1),
    "annotations": (
        lambda one: one["metadata"].update(annotations={"example.com/owner": "shop"}),
        1,
    ),
}
EDITS_WITH_DECISION: dict[str, tuple[Edit, int]] = {
    "number": (lambda one: one["spec"]["policy"].update(numberOfClusters=2), 2),
    "toleration": (
        lambda one: one["spec"]["policy"].update(tolerations=[{"operator": "Exists"}]),
        2,
    ),
    "rules": (
        lambda one: one["metadata"].update(
            annotations={"fleetui.io/semantics": "kubernetes"}
        ),
        1,
    ),
    "selectors": (
        lambda one: one["spec"]["resourceSelectors"][0].update(name="other"),
        2,
    ),
}


def edit(change: Edit) -> None:
    document = deepcopy(Placement.objects.get().document)
    change(document)
    save_placement(document, by=None, now=NOW)


def scheduled() -> tuple[str, bool]:
    """Return the value of the condition, and whether it is about the present generation."""
    manifest = manifest_of(Placement.objects.get())
    condition = manifest["status"]["conditions"][0]
    assert condition["type"] == "ClusterResourcePlacementScheduled"
    row = Placement.objects.get()
    assert scheduled_condition(row, latest_decision(row)) == condition
    return condition["status"], condition["observedGeneration"] == manifest["metadata"][
        "generation"
    ]


@pytest.mark.parametrize("name", EDITS_WITHOUT_DECISION)
def test_an_edit_that_cannot_change_the_decision_leaves_it(name: str) -> None:
    all_joined("a", "b", "c")
    before = decided("web", pick_n_spec(3))
    change, generation = EDITS_WITHOUT_DECISION[name]

    edit(change)

    assert scheduled() == ("True", True)
    row = Placement.objects.get()
    assert (row.revision, row.spec_generation) == (before.revision + 1, generation)
    assert row.scheduled_since == before.scheduled_since
    assert row.reschedules_on_fleet_change == before.reschedules_on_fleet_change
    run_due()
    assert scheduled() == ("True", True)
    assert (Decision.objects.count(), PolicySnapshot.objects.count()) == (1, 1)
    assert not Placement.objects.get().is_due


@pytest.mark.parametrize("name", EDITS_WITH_DECISION)
def test_an_edit_that_may_change_it_makes_the_condition_unknown_until_then(
    name: str,
) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(3))
    change, generation = EDITS_WITH_DECISION[name]

    edit(change)

    assert scheduled() == ("Unknown", True)
    assert Placement.objects.get().spec_generation == generation
    run_due()
    assert scheduled() == ("True", True)


def test_an_edit_without_decision_does_not_hide_one_that_is_due() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))

    edit(lambda one: one["spec"]["policy"].update(numberOfClusters=2))
    edit(lambda one: one["spec"].update(revisionHistoryLimit=5))

    assert scheduled() == ("Unknown", True)
    schedule_due(now=NOW)
    assert scheduled() == ("True", True)
    assert Placement.objects.get().placed_count == 2


def test_an_edit_without_decision_does_not_hide_a_change_of_the_fleet() -> None:
    all_joined("a")
    decided("web", pick_n_spec(2))
    assert scheduled() == ("False", True)

    all_joined("b")
    enqueue_affected_placements()
    edit(lambda one: one["metadata"].update(labels={"team": "shop"}))
    run_due()

    assert scheduled() == ("True", True)


def test_actions_raise_the_revision_alone() -> None:
    all_joined("a")
    before = decided("web", pick_n_spec(1))

    pause("web", by=None, now=NOW)

    after = Placement.objects.get()
    assert (after.revision, after.spec_generation) == (before.revision + 1, 1)


def test_other_objects_have_their_generation_too() -> None:
    strategy = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterStagedUpdateStrategy",
        "metadata": {"name": "steps"},
        "spec": {"stages": [{"name": "first"}]},
    }

    def generations(labels: dict[str, str], *, is_changed: bool) -> list[int]:
        taints = [{"key": "a", "effect": "NoSchedule"}] if is_changed else []
        cluster = ClusterSpec(member_document("a", labels, taints=taints))
        upsert_clusters([cluster], by=None, now=NOW)
        stages = [{"name": "second" if is_changed else "first"}]
        changed = {
            **strategy,
            "metadata": {"name": "steps", "labels": labels},
            "spec": {"stages": stages},
        }
        row = save_strategy(changed, by=None, now=NOW).object
        settings = config_map("settings", data={"a": "b"} if is_changed else {})
        settings["metadata"]["labels"] = labels
        apply_resources([namespace("shop"), settings], by=None, now=NOW)
        resource = Resource.objects.get(name="settings")
        documents = (
            cluster_manifest_of(MemberCluster.objects.get()),
            read_manifest(row, row.document),
            read_manifest(resource, resource.content),
        )
        return [document["metadata"]["generation"] for document in documents]

    assert generations({}, is_changed=False) == [1, 1, 1]
    assert generations({"team": "shop"}, is_changed=False) == [1, 1, 1]
    assert generations({"team": "shop"}, is_changed=True) == [2, 2, 2]
    assert generations({}, is_changed=True) == [2, 2, 2]


@pytest.mark.usefixtures("collected_static")
def test_rest_states_generation_and_version_apart(admin_client: Client) -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))

    edit(lambda one: one["metadata"].update(labels={"team": "shop"}))

    metadata = json.loads(admin_client.get("/api/v1/placements/web").content)[
        "metadata"
    ]
    assert (metadata["generation"], metadata["resourceVersion"].split("-")[0]) == (
        1,
        "2",
    )
