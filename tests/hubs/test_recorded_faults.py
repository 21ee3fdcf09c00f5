"""Objects of a real KubeFleet hub of which the console said what was not so (`faults/kubefleet`)."""

import json
from typing import Any

import pytest

from placements.models import Binding, Placement
from placements.services.health import health_of, is_degraded, is_healthy
from tests.documents import SHARED
from tests.hubs.hub_documents import member
from tests.hubs.projecting import NOW, ProjectedHub

FOLDER = SHARED / "faults" / "kubefleet"


pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not FOLDER.exists(), reason="needs ../shared"),
]


@pytest.fixture
def live() -> ProjectedHub:
    return ProjectedHub()


def put_fault(live: ProjectedHub, name: str) -> None:
    """Mirror and project the objects of a file, with ready members where it has none."""
    objects = json.loads((FOLDER / f"{name}.json").read_text())["objects"]
    clusters = {one["spec"]["targetCluster"] for one in objects if "targetCluster" in one.get("spec", {})}
    there = {one["metadata"]["name"] for one in objects if one["kind"] == "MemberCluster"}
    live.put("MemberCluster", *(member(cluster) for cluster in sorted(clusters - there)))
    order = ("MemberCluster", "ClusterResourcePlacement")
    for found in sorted(objects, key=lambda one: one["kind"] not in order):
        live.put(found["kind"], found)
    live.project(now=NOW)


def placement_named(name: str) -> Placement:
    return Placement.objects.get(name=name)


def status_of(name: str) -> tuple[str, str, Any]:
    """Return word, reason and counts of a placement; the filters of lists say the same as its page."""
    placement = placement_named(name)
    health = health_of(placement, now=NOW)
    rows = Placement.objects.filter(pk=placement.pk)
    assert rows.filter(is_healthy(now=NOW)).exists() == (health.level == "healthy")
    assert rows.filter(is_degraded(now=NOW)).exists() == (health.level in ("failed", "attention", "unknown"))
    return health.word, health.message, health.counts


def test_a_report_of_differences_is_not_healthy_and_applies_nothing(live: ProjectedHub) -> None:
    put_fault(live, "report-diff-green")

    with live.scope():
        word, message, counts = status_of("docs")
        binding = Binding.objects.get(cluster_name="member-1")

    assert (word, message) == ("Degraded", "Differs (differs on 3 clusters)")
    assert (counts.wanted, counts.applied, counts.available, counts.differs) == (3, 0, 0, 3)
    fields = {(row["kind"], row["name"]): row["fields"] for row in binding.diffed_objects}
    assert fields["Namespace", "docs"] == [["/metadata/labels/team", "other", "docs"]]
    assert binding.diffed_objects[0]["since"] == "2026-11-28T01:54:29Z"


def test_drift_is_shown_with_both_values_and_the_reason_of_the_hub(live: ProjectedHub) -> None:
    put_fault(live, "drift-not-shown")

    with live.scope():
        binding = Binding.objects.get(cluster_name="member-2")

    (row,) = binding.drifted_objects
    assert (row["kind"], row["namespace"], row["name"], row["since"]) == (
        "ConfigMap",
        "maps",
        "settings",
        "2026-11-28T02:27:48Z",
    )
    assert row["fields"] == [["/data/colour", "red", "green"], ["/data/extra", "yes", ""]]
    assert binding.message.startswith("ConfigMap maps/settings: Failed to apply the manifest (error: cannot")
    assert "drifts are found" in binding.message


def test_the_reason_of_a_failed_apply_is_that_of_its_objects(live: ProjectedHub) -> None:
    put_fault(live, "takeover-reason")

    with live.scope():
        binding = Binding.objects.get(cluster_name="member-1")

    assert "takeover" in binding.message
    assert "has failed to apply" not in binding.message


def test_resources_that_a_hub_does_not_list_are_unknown_and_not_none(live: ProjectedHub) -> None:
    put_fault(live, "external-no-resources")

    with live.scope():
        word, message, _ = status_of("ext")
        assert placement_named("ext").selected_count is None

    assert (word, message) == ("Pending", "needs a staged run")


def test_defaults_of_the_hub_are_understood(live: ProjectedHub) -> None:
    objects = json.loads((FOLDER / "unresolved-defaults.json").read_text())["objects"]
    for found in objects:
        live.put(found["kind"], found)
    live.project(now=NOW)

    for found in objects:
        _, not_understood, _ = live.mark(found["kind"], found["metadata"]["name"])
        assert not_understood == []


def test_a_change_that_has_not_started_is_not_healthy(live: ProjectedHub) -> None:
    put_fault(live, "healthy-before-rollout")

    with live.scope():
        word, message, counts = status_of("cart")

    assert word == "Progressing"
    assert (counts.wanted, counts.started) == (2, 0)
    assert message == "0 of 2 started"
