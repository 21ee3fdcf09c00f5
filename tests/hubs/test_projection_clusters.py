"""Member clusters of a live hub, from its mirror (10.1)."""

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.filters import ClusterFilterState, counts_by_state
from clusters.models import (
    ClusterLabel,
    ClusterTaint,
    FleetChange,
    FleetState,
    Hub,
    MemberCluster,
    MirroredObject,
)
from clusters.queries import current_fleet
from tests.hubs.hub_documents import member
from tests.hubs.projecting import NOW, ProjectedHub
from tests.rows import person

pytestmark = pytest.mark.django_db
KIND = "MemberCluster"


@pytest.fixture
def live() -> ProjectedHub:
    return ProjectedHub()


def row(live: ProjectedHub, name: str) -> MemberCluster:
    with live.scope():
        return MemberCluster.objects.get(name=name)


def changed(content: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a document with other values in metadata, spec or status."""
    return {
        **content,
        **{key: {**content[key], **values} for key, values in parts.items()},
    }


def test_a_cluster_has_manifest_report_and_eligibility_of_the_hub(
    live: ProjectedHub,
) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    live.put(KIND, changed(member("paris", region="eu"), spec={"taints": [taint]}))

    assert live.project() == 1

    found = row(live, "paris")
    assert found.document["spec"]["taints"] == [taint]
    assert found.document["metadata"] == {"name": "paris", "labels": {"region": "eu"}}
    assert (found.membership, found.verdict, found.driver) == ("joined", "", "")
    assert (found.joined_at, found.heartbeat_at) == (
        datetime(2026, 11, 1, 8, tzinfo=UTC),
        datetime(2026, 11, 1, 10, tzinfo=UTC),
    )
    assert found.properties == {"kubernetes-fleet.io/node-count": "3"}
    assert found.usage["available"] == {"cpu": "4", "memory": "10Gi"}
    with live.scope():
        assert list(ClusterLabel.objects.values_list("key", "value")) == [
            ("region", "eu")
        ]
        assert list(ClusterTaint.objects.values_list("key", "effect")) == [
            ("gpu", "NoSchedule")
        ]
        assert current_fleet().fleet.names == ("paris",)
        states = counts_by_state()
        assert (
            states[ClusterFilterState.READY],
            states[ClusterFilterState.NOT_MONITORED],
        ) == (1, 0)


@pytest.mark.servers
def test_a_second_projection_writes_nothing(live: ProjectedHub) -> None:
    live.put(KIND, member("paris", region="eu"), member("rome"))
    live.project()
    before = row(live, "paris")

    with CaptureQueriesContext(connection) as queries:
        live.reproject()

    tables = ("membercluster", "clusterlabel", "clustertaint", "fleetstate")
    written = [
        query["sql"]
        for query in queries
        if query["sql"].startswith(("INSERT", "UPDATE", "DELETE"))
        and any(f"{name}" in query["sql"] for name in tables)
    ]
    assert written == []
    assert row(live, "paris").revision == before.revision


def test_changes_move_the_counters_of_the_fleet_and_enqueue_nothing(
    live: ProjectedHub,
) -> None:
    live.put(KIND, member("paris", region="eu"))
    live.project()
    with live.scope():
        before = FleetState.objects.get()

    live.put(KIND, member("paris", region="us"))
    live.project()

    with live.scope():
        after = FleetState.objects.get()
        assert (after.version, after.readings) == (before.version + 1, before.readings)
        assert not FleetChange.objects.exists()
        assert list(ClusterLabel.objects.values_list("value", flat=True)) == ["us"]
    assert (row(live, "paris").revision, row(live, "paris").hub_changes) == (1, 1)


def test_the_revision_is_the_generation_of_the_hub(
    live: ProjectedHub, admin_client: Client
) -> None:
    """Labels and what the agent reports change a cluster, and not the generation that `kubectl` shows."""
    live.put(KIND, member("paris", region="eu"))
    live.project()
    with_property = changed(
        member("paris", region="us"), status={"properties": {"a/b": {"value": "4"}}}
    )
    live.put(KIND, with_property)
    live.project()
    tainted = changed(
        with_property,
        metadata={"generation": 2},
        spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
    )
    live.put(KIND, tainted)
    live.project()

    (listed,) = admin_client.get("/hubs/prod-eu/api/v1/clusters").json()["items"]
    assert listed["revision"] == 2
    assert row(live, "paris").hub_changes == 2


def test_a_cluster_that_is_joining_has_not_joined(
    live: ProjectedHub, admin_client: Client
) -> None:
    joined = member("paris")
    waiting = changed(joined, status={"conditions": [], "agentStatus": []})
    live.put(KIND, waiting)
    live.project()

    (listed,) = admin_client.get("/hubs/prod-eu/api/v1/clusters").json()["items"]
    assert (listed["membership"], listed["joinedAt"]) == ("joining", None)
    assert (
        "not joined yet"
        in admin_client.get("/hubs/prod-eu/clusters/paris/").content.decode()
    )

    condition = {
        "type": "Joined",
        "status": "True",
        "lastTransitionTime": "2026-11-01T09:00:00Z",
    }
    live.put(KIND, changed(joined, status={"conditions": [condition]}))
    live.project()

    (listed,) = admin_client.get("/hubs/prod-eu/api/v1/clusters").json()["items"]
    assert (listed["membership"], listed["joinedAt"]) == (
        "joined",
        "2026-11-01T09:00:00Z",
    )
    assert row(live, "paris").created_at == datetime(2026, 11, 1, 8, tzinfo=UTC)


@pytest.mark.servers
def test_a_cluster_that_is_deleted_on_the_hub_leaves_and_is_gone(
    live: ProjectedHub,
) -> None:
    live.put(KIND, member("paris"), member("rome"))
    live.project()

    live.put(
        KIND,
        changed(
            member("paris"), metadata={"deletionTimestamp": "2026-11-01T09:59:00Z"}
        ),
    )
    live.project()
    assert (row(live, "paris").membership, row(live, "paris").verdict) == (
        "leaving",
        "leaving",
    )

    live.remove(KIND, "paris")
    live.project()
    with live.scope():
        assert list(MemberCluster.objects.values_list("name", flat=True)) == ["rome"]


def test_a_cluster_that_joins_again_under_its_name_is_another_one(
    live: ProjectedHub,
) -> None:
    live.put(KIND, member("paris"))
    live.project()
    before = row(live, "paris")

    live.mirror.write(
        [live.item(KIND, member("paris"), uid="3e1f4c52-18d1-4a4c-8f4e-9d1a3a6a2b11")]
    )
    live.project()

    after = row(live, "paris")
    assert str(after.uid) == "3e1f4c52-18d1-4a4c-8f4e-9d1a3a6a2b11"
    assert after.pk != before.pk


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ({"agentStatus": []}, "noAgent"),
        (
            {"agentStatus": [{"type": "MemberAgent", "conditions": []}]},
            "staleHeartbeat",
        ),
    ],
)
def test_a_cluster_without_report_is_not_eligible(
    live: ProjectedHub, status: dict[str, Any], verdict: str
) -> None:
    live.put(KIND, changed(member("paris"), status=status))
    live.project()

    assert row(live, "paris").verdict == verdict
    assert row(live, "paris").membership == "joining"


def test_a_heartbeat_becomes_too_old_without_an_event(live: ProjectedHub) -> None:
    live.put(KIND, member("paris"))
    live.project()
    later = NOW + timedelta(minutes=5)
    Hub.objects.filter(pk=live.hub.pk).update(lease_expires_at=later)

    assert live.rejudge(now=NOW + timedelta(minutes=3)) == 0
    assert live.rejudge(now=later) == 1

    assert row(live, "paris").verdict == "staleHeartbeat"


@pytest.mark.servers
def test_quiet_heartbeats_keep_a_cluster_eligible(live: ProjectedHub) -> None:
    live.put(KIND, member("paris"))
    live.project()
    live.put(KIND, member("paris", heartbeat="2026-11-01T10:06:00Z"))
    live.mirror.flush({})
    later = NOW + timedelta(minutes=6)
    Hub.objects.filter(pk=live.hub.pk).update(lease_expires_at=later)

    assert live.project() == 0
    assert live.rejudge(now=later) == 0

    found = row(live, "paris")
    assert (found.verdict, found.heartbeat_at) == (
        "",
        datetime(2026, 11, 1, 10, 6, tzinfo=UTC),
    )


def test_the_clock_of_the_hub_counts(live: ProjectedHub) -> None:
    Hub.objects.filter(pk=live.hub.pk).update(clock_offset_seconds=600.0)
    live.put(KIND, member("paris"))
    live.project()

    assert row(live, "paris").verdict == "staleHeartbeat"


def test_eligibility_is_frozen_while_the_hub_is_not_live(live: ProjectedHub) -> None:
    live.put(KIND, member("paris"))
    live.project()
    Hub.objects.filter(pk=live.hub.pk).update(state="unreachable")
    later = NOW + timedelta(days=1)

    live.put(KIND, member("paris", region="eu"))
    live.project(now=later)

    assert live.rejudge(now=later) == 0
    found = row(live, "paris")
    assert (found.verdict, found.document["metadata"]["labels"]) == (
        "",
        {"region": "eu"},
    )


def test_what_is_not_understood_is_listed_and_refuses_nothing(
    live: ProjectedHub,
) -> None:
    odd = changed(
        member("paris"),
        metadata={"labels": {"a": 1, "b": "ok"}},
        spec={"taints": ["no taint", {"key": "k", "effect": "NoSchedule"}]},
        status={
            "properties": {"cpu": "7"},
            "agentStatus": [{"type": "MemberAgent", "conditions": [7]}],
        },
    )
    live.put(KIND, odd, member("rome"))
    live.project()

    found = row(live, "paris")
    assert found.document["metadata"]["labels"] == {"b": "ok"}
    assert found.document["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    is_dirty, paths, error = live.mark(KIND, "paris")
    assert (is_dirty, error) == (False, "")
    assert sorted(paths) == [
        "metadata.labels.a",
        "spec.taints[0]",
        "status.agentStatus[0].conditions[0]",
        "status.properties.cpu",
    ]


def test_an_object_that_fails_is_marked_and_the_others_go_on(
    live: ProjectedHub,
) -> None:
    live.put(KIND, member("paris"), member("rome"), member("wien"))
    with live.scope():
        MirroredObject.objects.filter(name="rome").update(
            manifest=zlib.compress(b"no JSON")
        )

    assert live.project() == 3

    with live.scope():
        assert set(MemberCluster.objects.values_list("name", flat=True)) == {
            "paris",
            "wien",
        }
    is_dirty, _, error = live.mark(KIND, "rome")
    assert not is_dirty
    assert error.startswith("JSONDecodeError")

    live.put(KIND, member("rome", region="eu"))
    live.project()
    assert live.mark(KIND, "rome") == (False, [], "")


@pytest.mark.nightly
def test_the_pages_of_the_hub_show_its_clusters(live: ProjectedHub) -> None:
    live.put(KIND, member("paris", region="eu"))
    live.project()
    client = Client()
    client.force_login(person("boss", "operator"))

    for path in (
        "/hubs/prod-eu/clusters/",
        "/hubs/prod-eu/clusters/paris/",
        "/hubs/prod-eu/topology/",
    ):
        response = client.get(path)
        assert response.status_code == 200, path
        assert b"paris" in response.content or "topology" in path
    assert b"paris" not in client.get("/clusters/").content
