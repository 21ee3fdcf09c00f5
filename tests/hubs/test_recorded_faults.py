"""Objects of a real KubeFleet hub of which the console said what was not so (`faults/kubefleet`)."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusters.models import Hub, HubStream
from placements.hubs.replay.observed_decisions import HubSide, observe_due, replayed
from placements.models import Binding, HubDecision, Placement, Rollout
from placements.services.health import IS_DEGRADED, IS_HEALTHY, health_of
from placements.services.problems.book import compare
from placements.services.problems.inbox import inbox
from tests.database import compare_all
from tests.documents import SHARED
from tests.hubs.hub_documents import member
from tests.hubs.projecting import NOW, ProjectedHub
from tests.rows import person

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
    clusters = {
        one["spec"]["targetCluster"]
        for one in objects
        if "targetCluster" in one.get("spec", {})
    }
    there = {
        one["metadata"]["name"] for one in objects if one["kind"] == "MemberCluster"
    }
    live.put(
        "MemberCluster", *(member(cluster) for cluster in sorted(clusters - there))
    )
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
    compare(now=NOW)
    rows = Placement.objects.filter(pk=placement.pk)
    assert rows.filter(IS_HEALTHY).exists() == (health.level == "healthy")
    assert rows.filter(IS_DEGRADED).exists() == (
        health.level in ("failed", "attention", "unknown")
    )
    return health.word, health.message, health.counts


def test_a_report_of_differences_is_not_healthy_and_applies_nothing(
    live: ProjectedHub,
) -> None:
    put_fault(live, "report-diff-green")

    with live.scope():
        word, message, counts = status_of("docs")
        binding = Binding.objects.get(cluster_name="member-1")

    assert (word, message) == ("Degraded", "Differs (differs on 3 clusters)")
    assert (counts.wanted, counts.applied, counts.available, counts.differs) == (
        3,
        0,
        0,
        3,
    )
    fields = {
        (row["kind"], row["name"]): row["fields"] for row in binding.diffed_objects
    }
    assert fields["Namespace", "docs"] == [["/metadata/labels/team", "other", "docs"]]
    assert binding.diffed_objects[0]["since"] == "2026-11-28T01:54:29Z"
    assert binding.phase_changed_at == datetime(2026, 11, 28, 1, 54, 29, tzinfo=UTC)


def test_drift_is_shown_with_both_values_and_the_reason_of_the_hub(
    live: ProjectedHub,
) -> None:
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
    assert row["fields"] == [
        ["/data/colour", "red", "green"],
        ["/data/extra", "yes", ""],
    ]
    assert binding.message.startswith(
        "ConfigMap maps/settings: Failed to apply the manifest (error: cannot"
    )
    assert "drifts are found" in binding.message


def test_the_reason_of_a_failed_apply_is_that_of_its_objects(
    live: ProjectedHub,
) -> None:
    put_fault(live, "takeover-reason")

    with live.scope():
        binding = Binding.objects.get(cluster_name="member-1")

    assert "takeover" in binding.message
    assert "has failed to apply" not in binding.message


def test_resources_that_a_hub_does_not_list_are_unknown_and_not_none(
    live: ProjectedHub,
) -> None:
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


def fault(name: str) -> dict[str, list[Any]]:
    """Return the objects of a file by kind."""
    objects: dict[str, list[Any]] = defaultdict(list)
    for one in json.loads((FOLDER / f"{name}.json").read_text())["objects"]:
        objects[one["kind"]].append(one)
    return objects


def not_joined(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster as it was before its agents reported."""
    return {**cluster, "status": {"conditions": []}}


class Clock:
    """The time at which a mirror is written, projected and observed."""

    def __init__(self, live: ProjectedHub, now: datetime) -> None:
        self.live, self.now = live, now
        live.mirror._clock = lambda: self.now
        Hub.objects.filter(pk=live.hub.pk).update(
            lease_expires_at=now + timedelta(days=1), state_since=now
        )

    def go(self, seconds: int) -> None:
        self.live.mirror.flush({})
        self.live.project(now=self.now)
        self.live.rejudge(now=self.now)
        self.now += timedelta(seconds=seconds)

    def observe(self) -> HubSide:
        self.now += timedelta(seconds=4)
        with self.live.scope():
            while observe_due(now=self.now):
                pass
            return replayed(HubDecision.objects.get(is_latest=True))


START = datetime(2026, 11, 28, 1, 54, 10, tzinfo=UTC)


def join_one_after_another(live: ProjectedHub, objects: dict[str, list[Any]]) -> Clock:
    """Have the clusters join, each selected after it and before the next, and the hub write its status."""
    members = {one["metadata"]["name"]: one for one in objects["MemberCluster"]}
    bindings = {
        one["spec"]["targetCluster"]: one for one in objects["ClusterResourceBinding"]
    }
    clock = Clock(live, START)
    live.put("MemberCluster", *map(not_joined, members.values()))
    clock.go(0)
    with live.scope():
        HubStream.objects.update(listed_at=START)
    live.put("ClusterResourcePlacement", *objects["ClusterResourcePlacement"])
    for cluster in ("member-3", "member-1", "member-2"):
        clock.go(2)
        live.put("MemberCluster", members[cluster])
        clock.go(1)
        live.put("ClusterResourceBinding", bindings[cluster])
    live.put(
        "ClusterSchedulingPolicySnapshot", *objects["ClusterSchedulingPolicySnapshot"]
    )
    clock.go(0)
    return clock


def test_clusters_that_joined_one_after_another_are_replayed_in_steps(
    live: ProjectedHub,
) -> None:
    clock = join_one_after_another(live, fault("joined-one-after-another"))

    side = clock.observe()

    assert (side.agreement.value, side.row.inputs) == ("agrees", "observed")


def test_a_step_that_the_replay_does_not_follow_is_uncertain(
    live: ProjectedHub,
) -> None:
    objects = fault("joined-one-after-another")
    for one in objects["ClusterResourceBinding"]:
        if one["spec"]["targetCluster"] == "member-3":
            one["spec"]["clusterDecision"]["clusterScore"]["priorityScore"] = 7
    clock = join_one_after_another(live, objects)

    assert clock.observe().agreement.value == "uncertain"


def inbox_of(user: User) -> dict[tuple[str, str], str]:
    """Return the sentences of an inbox by kind and name."""
    compare_all(now=NOW)
    problems = [item.problem for group in inbox(user, now=NOW) for item in group.items]
    return {(problem.kind, problem.name): problem.message for problem in problems}


def test_differences_and_failed_clusters_are_in_the_inbox_and_on_the_pages(
    live: ProjectedHub, client: Client
) -> None:
    for name in ("report-diff-green", "drift-not-shown", "takeover-reason"):
        put_fault(live, name)
    user = person("ann", "operator")
    client.force_login(user)

    items = inbox_of(user)
    assert items["drift", "docs"] == "Differences on 3 clusters: member-1 and 2 more."
    assert items["drift", "maps"].startswith("Drift on 1 cluster: ")
    assert items["placement-degraded", "take"].startswith("Failed on ")
    with live.scope():
        Rollout.objects.filter(placement_name="take").update(
            state=Rollout.State.FINISHED, ended_at=NOW
        )
    assert inbox_of(user)["placement-degraded", "take"].startswith("Failed on ")

    def shown(address: str) -> str:
        return client.get(f"/hubs/prod-eu/{address}").content.decode()

    assert "Differs (differs on 3 clusters)" in shown("placements/docs/")
    for address in ("placements/docs/clusters/member-1/", "clusters/member-1/"):
        assert ">Differs<" in shown(address), address
    assert "takeover is needed" in shown("placements/take/")
    assert "/data/colour" in shown("placements/maps/clusters/member-2/")
    assert "maps/settings" in shown("placements/maps/drift/")
    [drift] = client.get("/hubs/prod-eu/api/v1/placements/maps/drifts").json()["items"]
    assert "/data/colour" in str(drift)
    assert "2026-11-28T02:27:48Z" in str(drift)
