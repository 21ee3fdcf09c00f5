"""What kind of failure it was, what was refused, and since when each condition is so.

See `rules/lifecycle.md#placement-status`.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest

from clusters.drivers.base import DriverRejected, ObjectRef, ObjectSeen, Refusal
from clusters.drivers.readiness import Readiness
from placements.models import Binding, Placement
from placements.services.overrides.operations import delete_override, save_override
from placements.services.placements import save_placement
from placements.services.rollouts.call_results import (
    MOST_OBJECTS,
    refusal_failure,
    unready_failure,
)
from placements.services.status import status_of
from tests.rows import (
    all_joined,
    config_map,
    decided,
    pick_n_spec,
    placement_document,
    spec,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db
WRONG = {"op": "remove", "path": "/spec/nowhere"}


def placed(clusters: int = 2) -> World:
    """Return a world in which the shop is on every cluster."""
    return settled_world(clusters, spec())


def on(cluster: str, world: World) -> dict[str, Any]:
    """Return the status of one cluster."""
    status = status_of(Placement.objects.get(name="web"), now=world.now)
    return next(
        one for one in status["placementStatuses"] if one.get("clusterName") == cluster
    )


def last(status: dict[str, Any]) -> tuple[str, str, str]:
    """Return the last condition: its type, its value and its reason."""
    condition = status["conditions"][-1]
    return condition["type"], condition["status"], condition["reason"]


def since(status: dict[str, Any]) -> dict[str, datetime]:
    """Return since when each condition is so."""
    return {
        condition["type"]: datetime.fromisoformat(condition["lastTransitionTime"])
        for condition in status["conditions"]
    }


def binding(cluster: str) -> Binding:
    """Return the row of one cluster."""
    return Binding.objects.get(placement__name="web", cluster_name=cluster)


@pytest.mark.servers_only
@pytest.mark.servers
def test_an_override_that_does_not_apply_is_reported_with_its_path() -> None:
    world = placed()

    save_override(for_clusters("odd", rule(WRONG)), by=None, now=world.now)
    world.pass_time(5)

    failed = Binding.objects.get(failure="override")
    assert failed.failed_override is not None
    assert failed.failed_override["override"] == "odd-0"
    assert failed.failed_override["path"].startswith("spec.policy.overrideRules[0]")
    assert failed.failed_objects == []
    status = on(failed.cluster_name, world)
    assert last(status) == ("Overridden", "False", "OverriddenFailed")
    message = status["conditions"][-1]["message"]
    assert f"Nothing is sent to {failed.cluster_name}: override" in message
    assert "failedPlacements" not in status
    delete_override("ClusterResourceOverride", "", "odd", by=None, now=world.now)
    world.run(until=world.is_settled)
    assert set(Binding.objects.values_list("failure", "failed_override")) == {
        ("", None)
    }


@pytest.mark.nightly
def test_overrides_that_apply_are_listed_and_count_as_started() -> None:
    world = placed()

    save_override(
        for_clusters("tier", rule(annotate(tier="1"))), by=None, now=world.now
    )
    world.work()
    world.run(until=world.is_settled)

    status = on("c000", world)
    assert status["applicableClusterResourceOverrides"] == ["tier-0"]
    assert "applicableResourceOverrides" not in status
    assert last(status) == ("Available", "True", "AllWorkAreAvailable")
    assert status["conditions"][2]["reason"] == "OverriddenSucceeded"


@pytest.mark.nightly
def test_what_a_cluster_refuses_is_reported_object_by_object() -> None:
    world = placed()
    world.inject("c001", {"kind": "refuse", "objectName": "bad"})

    world.apply(config_map("bad"))
    world.pass_time(5)

    row = binding("c001")
    assert row.failure == "refused"
    [refused] = row.failed_objects
    assert {**refused, "message": ""} == {
        "group": "",
        "version": "v1",
        "kind": "ConfigMap",
        "namespace": "shop",
        "name": "bad",
        "code": "ManifestApplyFailed",
        "message": "",
    }
    [entry] = on("c001", world)["failedPlacements"]
    assert (entry["kind"], entry["namespace"], entry["name"]) == (
        "ConfigMap",
        "shop",
        "bad",
    )
    assert entry["condition"]["type"] == "Applied"
    assert entry["condition"]["message"] == refused["message"]
    assert row.message == f"ConfigMap shop/bad: {refused['message']}"
    world.inject("c001")
    world.run(until=world.is_settled)
    assert (binding("c001").failure, binding("c001").failed_objects) == ("", [])


@pytest.mark.nightly
def test_a_cluster_out_of_reach_is_neither_refused_nor_failed() -> None:
    world = placed()
    world.inject("c001", {"kind": "unreachable"})

    world.change()
    world.run(until=lambda: bool(binding("c001").failure))

    assert (binding("c001").failure, binding("c001").failed_objects) == (
        "unreachable",
        [],
    )
    assert last(on("c001", world)) == ("Applied", "False", "ApplyInProgress")
    world.inject("c001")
    world.run(until=world.is_settled)
    assert binding("c001").failure == ""


@pytest.mark.nightly
def test_objects_that_are_not_ready_are_listed_while_the_cluster_is_not_available() -> (
    None
):
    world = placed()
    world.inject("c001", {"kind": "notReady", "objectName": "web"})

    world.change()
    world.run(until=lambda: bool(binding("c001").failed_objects))

    status = on("c001", world)
    assert last(status) == ("Available", "False", "NotAllWorkAreAvailable")
    assert binding("c001").failure == ""
    [entry] = status["failedPlacements"]
    assert (entry["group"], entry["version"], entry["kind"], entry["name"]) == (
        "apps",
        "v1",
        "Deployment",
        "web",
    )
    assert (entry["condition"]["type"], entry["condition"]["reason"]) == (
        "Available",
        "ManifestNotAvailableYet",
    )


def test_many_refusals_are_sorted_cut_at_a_hundred_and_survive_odd_words() -> None:
    refusals = tuple(
        Refusal(
            ObjectRef("", "ConfigMap", "shop", f"c{number:03}"), "X", "a; b: c" * 200
        )
        for number in reversed(range(MOST_OBJECTS + 5))
    )

    failure = refusal_failure(Binding(), DriverRejected("refused", refusals))

    assert [object_fault.name for object_fault in failure.objects] == [
        f"c{number:03}" for number in range(MOST_OBJECTS)
    ]
    assert failure.objects[0].message == "a; b: c" * 200


def test_what_cannot_be_observed_blocks_no_cluster() -> None:
    job = ObjectSeen(
        ObjectRef("batch", "Job", "shop", "once"),
        Readiness.NOT_TRACKABLE,
        "not trackable",
    )

    assert unready_failure(Binding(), [job]).objects == ()


@pytest.mark.nightly
def test_a_condition_keeps_its_moment_until_its_value_changes() -> None:
    world = settled_world(1, spec())
    came = since(on("c000", world))

    world.pass_time(300)

    assert since(on("c000", world)) == came
    assert came["Available"] - came["Applied"] == timedelta(seconds=2)
    world.change()
    world.work()
    changed = since(on("c000", world))
    assert changed["RolloutStarted"] == came["RolloutStarted"]
    assert changed["Applied"] == world.now
    assert changed["Available"] == world.now
    assert (
        since(status_of(Placement.objects.get(), now=world.now))[
            "ClusterResourcePlacementAvailable"
        ]
        == world.now
    )


@pytest.mark.nightly
def test_a_blocked_cluster_is_blocked_since_the_first_newer_version() -> None:
    world = settled_world(2, one_at_a_time())
    world.inject("c000", {"kind": "notReady", "objectName": "web"})
    world.change()
    world.work()
    began = world.now
    assert last(on("c001", world)) == (
        "RolloutStarted",
        "False",
        "RolloutNotStartedYet",
    )

    world.pass_time(20)
    world.change()
    world.work()

    assert since(on("c001", world))["RolloutStarted"] == began


@pytest.mark.nightly
def test_scheduled_is_pending_from_an_edit_to_its_decision_and_keeps_its_moment_otherwise() -> (
    None
):
    world = placed()
    first = since(status_of(Placement.objects.get(), now=world.now))[
        "ClusterResourcePlacementScheduled"
    ]
    world.pass_time(10)
    world.change()
    assert (
        status_of(Placement.objects.get(), now=world.now)["conditions"][0]["status"]
        == "True"
    )
    world.work()
    scheduled = since(status_of(Placement.objects.get(), now=world.now))
    assert scheduled["ClusterResourcePlacementScheduled"] == first

    undecided = {**spec(), "revisionHistoryLimit": 3}
    save_placement(placement_document("web", undecided), by=None, now=world.now)
    kept = status_of(Placement.objects.get(), now=world.now)
    assert since(kept)["ClusterResourcePlacementScheduled"] == first

    policy = {"placementType": "PickAll", "tolerations": [{"operator": "Exists"}]}
    decided_anew = {**spec(), "policy": policy}
    save_placement(placement_document("web", decided_anew), by=None, now=world.now)

    pending = status_of(Placement.objects.get(), now=world.now)
    assert pending["conditions"][0]["reason"] == "SchedulePending"
    assert since(pending)["ClusterResourcePlacementScheduled"] == world.now
    world.now += timedelta(seconds=1)
    world.work()
    assert (
        since(status_of(Placement.objects.get(), now=world.now))[
            "ClusterResourcePlacementScheduled"
        ]
        == world.now
    )


def test_s12_clusters_that_are_missing_are_entries_without_a_name() -> None:
    all_joined("a", "b", "c", "d")
    only = {
        "affinity": {
            "clusterAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "clusterSelectorTerms": [
                        {
                            "labelSelector": {
                                "matchExpressions": [{"key": "x", "operator": "Exists"}]
                            }
                        }
                    ]
                }
            }
        }
    }
    decided("none", pick_n_spec(3, **only))
    decided("many", pick_n_spec(9))
    decided(
        "fixed",
        spec({"placementType": "PickFixed", "clusterNames": ["a", "missing", "none"]}),
    )

    def nameless(name: str) -> list[tuple[str, str]]:
        statuses = status_of(Placement.objects.get(name=name))["placementStatuses"]
        entries = [
            status["conditions"][0]
            for status in statuses
            if "clusterName" not in status
        ]
        return [(entry["reason"], entry["message"]) for entry in entries]

    refused = "ClusterUnschedulable, cluster does not match with any of the required cluster affinity terms"
    assert nameless("none") == [("ScheduleFailed", refused)] * 3
    assert nameless("many") == []
    assert nameless("fixed") == [
        ("ScheduleFailed", 'Specified cluster "missing" is not found'),
        ("ScheduleFailed", 'Specified cluster "none" is not found'),
    ]
