"""MemberCluster documents, the clusters made of them, and clusters in the plain form of a case."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.case_manifest import parse_case_cluster, parse_clusters
from clusters.fleet import (
    ELIGIBLE,
    Cluster,
    Eligibility,
    EligibilityKind,
    ResourceUsage,
    Taint,
)
from clusters.manifest import newest_heartbeat_of, parse_member
from tests.documents import errors_in, member

Raw = dict[str, Any]

NOW = datetime(2026, 8, 20, 12, 0, tzinfo=UTC)
NOT_CONNECTED = "cluster is not connected to the fleet: "


def ago(minutes: float) -> str:
    return (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


def condition(kind: str, status: str, *, since: float = 60) -> Raw:
    return {
        "type": kind,
        "status": status,
        "reason": "Said",
        "lastTransitionTime": ago(since),
    }


def reported(
    *conditions: Raw, heartbeat: str | None = None, agent: str = "MemberAgent"
) -> Raw:
    """Write a status with one agent's report, half a minute old unless said otherwise."""
    heard = {"lastReceivedHeartbeat": heartbeat or ago(0.5)}
    return {"agentStatus": [{"type": agent, "conditions": list(conditions), **heard}]}


JOINED, HEALTHY = condition("Joined", "True"), condition("Healthy", "True")

ACCEPTED = {
    "without a status": member(),
    "the other API version": {
        **member(),
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
    },
    "every field of the spec": member(
        heartbeatPeriodSeconds=600,
        taints=[{"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}],
        deleteOptions={"validationMode": "Skip"},
    ),
    "what a newer hub writes": member(
        status={"future": [{"a": 1}], "namespaces": {"a": "b"}}
    ),
    "what a hub adds": member(
        metadata={"uid": "1", "deletionTimestamp": None, "finalizers": ["x"]}
    ),
    "an empty status": member(status={}),
}


@pytest.mark.parametrize("document", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(document: Raw) -> None:
    assert parse_member(document).metadata.name == "bravelion"


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a placement": (
        {**member(), "kind": "ClusterResourcePlacement"},
        "kind",
        "kind-not-supported",
    ),
    "an old API version": (
        {**member(), "apiVersion": "cluster.kubernetes-fleet.io/v1alpha1"},
        "apiVersion",
        "api-version-not-supported",
    ),
    "a name too long": (
        member(metadata={"name": "a" * 64}),
        "metadata.name",
        "too-long",
    ),
    "no identity": (member(identity=None), "spec.identity", "required"),
    "an identity without a name": (
        member(identity={"kind": "User"}),
        "spec.identity.name",
        "required",
    ),
    "a heartbeat too rare": (
        member(heartbeatPeriodSeconds=601),
        "spec.heartbeatPeriodSeconds",
        "out-of-range",
    ),
    "an unknown field": (member(state="Join"), "spec.state", "unknown-field"),
    "too many taints": (
        member(taints=[{"key": f"k{i}", "effect": "NoSchedule"} for i in range(101)]),
        "spec.taints",
        "too-many",
    ),
    "another effect": (
        member(taints=[{"key": "a", "effect": "NoExecute"}]),
        "spec.taints[0].effect",
        "not-one-of",
    ),
    "a bad taint key": (
        member(taints=[{"key": "a b", "effect": "NoSchedule"}]),
        "spec.taints[0].key",
        "bad-format",
    ),
    "a bad taint value": (
        member(taints=[{"key": "a", "value": "b c", "effect": "NoSchedule"}]),
        "spec.taints[0].value",
        "bad-format",
    ),
    "a taint twice": (
        member(
            taints=[
                {"key": "a", "effect": "NoSchedule"},
                {"key": "a", "value": "", "effect": "NoSchedule"},
            ]
        ),
        "spec.taints[1]",
        "duplicate",
    ),
    "an unknown mode": (
        member(deleteOptions={"validationMode": "Maybe"}),
        "spec.deleteOptions.validationMode",
        "not-one-of",
    ),
    "a heartbeat that is no time": (
        member(status=reported(heartbeat="yesterday")),
        "status.agentStatus[0].lastReceivedHeartbeat",
        "bad-format",
    ),
    "a day that does not exist": (
        member(status=reported(heartbeat="2026-02-30T00:00:00Z")),
        "status.agentStatus[0].lastReceivedHeartbeat",
        "bad-format",
    ),
    "a property without a value": (
        member(status={"properties": {"example.com/cost": {}}}),
        'status.properties["example.com/cost"].value',
        "wrong-type",
    ),
    "a quantity of true": (
        member(status={"resourceUsage": {"capacity": {"cpu": True}}}),
        "status.resourceUsage.capacity.cpu",
        "wrong-type",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("document", "path", "code"), REFUSED.values(), ids=REFUSED.keys()
)
def test_refuses(document: Any, path: str, code: str) -> None:
    assert errors_in(parse_member, document) == [(path, code)]


VERDICTS: dict[str, tuple[Raw, EligibilityKind | None, str]] = {
    "healthy": (member(status=reported(JOINED, HEALTHY)), None, ""),
    "leaving": (
        member(
            metadata={"deletionTimestamp": ago(1)}, status=reported(JOINED, HEALTHY)
        ),
        EligibilityKind.LEAVING,
        "cluster has left the fleet",
    ),
    "no report": (
        member(status={}),
        EligibilityKind.NO_AGENT,
        f"{NOT_CONNECTED}member agent not online yet",
    ),
    "only another agent": (
        member(status=reported(JOINED, HEALTHY, agent="ServiceExportImportAgent")),
        EligibilityKind.NO_AGENT,
        f"{NOT_CONNECTED}member agent not online yet",
    ),
    "a heartbeat at the limit": (
        member(status=reported(JOINED, HEALTHY, heartbeat=ago(5))),
        None,
        "",
    ),
    "a stale heartbeat": (
        member(status=reported(JOINED, HEALTHY, heartbeat=ago(5.5))),
        EligibilityKind.STALE_HEARTBEAT,
        f"{NOT_CONNECTED}no recent heartbeat signals (last received 5.50 minutes ago)",
    ),
    "not joined": (
        member(status=reported(condition("Joined", "False"), HEALTHY)),
        EligibilityKind.NOT_JOINED,
        f"{NOT_CONNECTED}member agent not joined yet",
    ),
    "joined unknown": (
        member(status=reported(HEALTHY)),
        EligibilityKind.NOT_JOINED,
        f"{NOT_CONNECTED}member agent not joined yet",
    ),
    "no health": (
        member(status=reported(JOINED)),
        EligibilityKind.NO_HEALTH,
        f"{NOT_CONNECTED}health condition from member agent is not available",
    ),
    "unhealthy for a short time": (
        member(status=reported(JOINED, condition("Healthy", "False", since=5))),
        None,
        "",
    ),
    "unhealthy for long": (
        member(status=reported(JOINED, condition("Healthy", "Unknown", since=61.25))),
        EligibilityKind.UNHEALTHY,
        f"{NOT_CONNECTED}unhealthy for a prolonged period of time (last transitioned 61.25 minutes ago)",
    ),
    "stale before unhealthy": (
        member(
            status=reported(JOINED, condition("Healthy", "False"), heartbeat=ago(6))
        ),
        EligibilityKind.STALE_HEARTBEAT,
        f"{NOT_CONNECTED}no recent heartbeat signals (last received 6.00 minutes ago)",
    ),
}


@pytest.mark.parametrize(
    ("document", "kind", "reason"), VERDICTS.values(), ids=VERDICTS.keys()
)
def test_the_first_thing_that_fails_decides(
    document: Raw, kind: EligibilityKind | None, reason: str
) -> None:
    found = parse_member(document).cluster(now=NOW, strict_health=True)

    assert found.eligibility == Eligibility(kind, reason)


def test_limits_can_be_set() -> None:
    found = parse_member(member(status=reported(JOINED, HEALTHY, heartbeat=ago(7))))

    assert (
        found.cluster(now=NOW, heartbeat_limit=timedelta(minutes=7)).eligibility
        == ELIGIBLE
    )


def test_without_a_status_a_cluster_is_eligible_unless_health_is_strict() -> None:
    found = parse_member(member())

    assert found.cluster(now=NOW).eligibility == ELIGIBLE
    assert (
        found.cluster(now=NOW, strict_health=True).eligibility.kind
        is EligibilityKind.NO_AGENT
    )


def test_a_cluster_takes_what_scheduling_reads() -> None:
    status = {
        "properties": {
            "cost": {"value": 3, "observationTime": ago(1)},
            "sku": {"value": "1Gi"},
        },
        "resourceUsage": {
            "capacity": {"cpu": 16},
            "available": {"memory": "1.5Gi"},
            "observationTime": ago(1),
        },
    }
    taints = [{"key": "a", "effect": "NoSchedule"}]

    found = parse_member(
        member(metadata={"labels": {"region": "east"}}, taints=taints, status=status)
    )

    assert found.cluster(now=NOW, strict_health=False) == Cluster(
        "bravelion",
        {"region": "east"},
        (Taint("a"),),
        {"cost": "3", "sku": "1Gi"},
        ResourceUsage({"cpu": "16"}, {}, {"memory": "1.5Gi"}),
        Eligibility(
            EligibilityKind.NO_AGENT, f"{NOT_CONNECTED}member agent not online yet"
        ),
    )


def test_the_newest_heartbeat_is_the_moment_of_an_old_export() -> None:
    ages = [reported(JOINED, heartbeat=ago(7)), reported(JOINED, heartbeat=ago(3)), {}]
    members = [parse_member(member(status=status)) for status in ages]

    assert newest_heartbeat_of(members) == NOW - timedelta(minutes=3)
    assert newest_heartbeat_of([]) is None


def test_takes_a_cluster_of_a_case() -> None:
    raw = {
        "name": "Any name",
        "labels": {"any key": "any value"},
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c"}],
        "properties": {"cost": "3", "cores": 4},
        "resourceUsage": {"capacity": {"cpu": "16"}},
        "eligible": {"value": False, "kind": "unhealthy", "reason": "ill"},
    }

    assert parse_case_cluster(raw) == Cluster(
        "Any name",
        {"any key": "any value"},
        (Taint("a", "b"), Taint("c")),
        {"cost": "3", "cores": "4"},
        ResourceUsage({"cpu": "16"}),
        Eligibility(EligibilityKind.UNHEALTHY, "ill"),
    )


@pytest.mark.parametrize(
    "raw",
    [{"name": "a"}, {"name": "a", "labels": None, "taints": None, "eligible": None}],
)
def test_a_cluster_of_a_case_needs_only_a_name(raw: Raw) -> None:
    assert parse_case_cluster(raw) == Cluster("a")


def test_ineligible_without_a_kind_is_unspecified() -> None:
    found = parse_case_cluster(
        {"name": "a", "eligible": {"value": False, "reason": "because"}}
    )

    assert found.eligibility == Eligibility(EligibilityKind.UNSPECIFIED, "because")


@pytest.mark.parametrize(
    ("raw", "path", "code"),
    [
        ({}, "name", "required"),
        ({"name": ""}, "name", "required"),
        ({"name": 5}, "name", "wrong-type"),
        ({"name": "a\ud800"}, "name", "wrong-type"),
        ({"name": "a", "label": {}}, "label", "unknown-field"),
        ({"name": "a", 1: 2}, "", "wrong-type"),
        ({"name": "a", "labels": {"b": None}}, "labels.b", "wrong-type"),
        ({"name": "a", "labels": {"b": 1}}, "labels.b", "wrong-type"),
        ({"name": "a", "labels": []}, "labels", "wrong-type"),
        ({"name": "a", "taints": {}}, "taints", "wrong-type"),
        ({"name": "a", "taints": ["b"]}, "taints[0]", "wrong-type"),
        ({"name": "a", "taints": [{}]}, "taints[0].key", "required"),
        (
            {"name": "a", "taints": [{"key": "b", "effect": "NoExecute"}]},
            "taints[0].effect",
            "not-one-of",
        ),
        (
            {"name": "a", "taints": [{"key": "b", "x": 1}]},
            "taints[0].x",
            "unknown-field",
        ),
        ({"name": "a", "properties": {"b": True}}, "properties.b", "wrong-type"),
        (
            {"name": "a", "resourceUsage": {"used": {}}},
            "resourceUsage.used",
            "unknown-field",
        ),
        (
            {"name": "a", "resourceUsage": {"capacity": {"b": []}}},
            "resourceUsage.capacity.b",
            "wrong-type",
        ),
        ({"name": "a", "eligible": True}, "eligible", "wrong-type"),
        ({"name": "a", "eligible": {}}, "eligible.value", "required"),
        (
            {"name": "a", "eligible": {"value": False, "kind": "x"}},
            "eligible.kind",
            "not-one-of",
        ),
    ],
)
def test_refuses_a_cluster_of_a_case(raw: Any, path: str, code: str) -> None:
    assert errors_in(parse_case_cluster, raw) == [(path, code)]


def test_clusters_of_a_case_have_different_names() -> None:
    assert errors_in(
        parse_clusters, [{"name": "a"}, {"name": "b"}, {"name": "a", "x": 1}]
    ) == [
        ("clusters[2].name", "duplicate"),
        ("clusters[2].x", "unknown-field"),
    ]


def test_clusters_of_a_case_keep_their_order() -> None:
    assert parse_clusters([{"name": "b"}, {"name": "a"}]) == (
        Cluster("b"),
        Cluster("a"),
    )
