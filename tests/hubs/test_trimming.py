"""What the mirror stores of an object, and which columns it reads (`rules/live-hub.md#mirror`)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from placements.hubs.kinds.base import Columns, StreamKind
from placements.hubs.kinds.kubefleet import KUBEFLEET, STREAMS
from placements.hubs.trimming import (
    LARGEST_OBJECT,
    MirrorRecord,
    UnusableObject,
    record_of,
    unpack,
)
from tests.hubs.hub_documents import PREFIX, binding, member, placement, snapshot


def stream(kind: str) -> StreamKind:
    return next(stream_kind for stream_kind in STREAMS if stream_kind.kind == kind)


def record(kind: str, content: Mapping[str, Any]) -> MirrorRecord:
    metadata = {"uid": "u1", "resourceVersion": "7", **content["metadata"]}
    found = stream(kind)
    version = "v1beta1" if found.group else "v1"
    return record_of(
        KUBEFLEET, found, version, {**content, "kind": kind, "metadata": metadata}
    )


def test_a_binding_loses_managed_fields_and_keeps_their_managers() -> None:
    stored = record("ClusterResourceBinding", binding("web", "paris"))

    metadata = unpack(stored.packed)["metadata"]
    assert [field["paths"] for field in metadata["managedFields"]] == [
        ["spec"],
        ["status"],
    ]
    assert metadata["managedFields"][1] == {
        "manager": "hubagent",
        "operation": "Update",
        "subresource": "status",
        "time": "2026-11-01T09:30:00Z",
        "paths": ["status"],
    }
    assert stored.columns == Columns(
        owner="web", cluster="paris", state="Scheduled", policy_snapshot="web-0"
    )
    assert len(stored.packed) <= 900


def test_the_copy_of_kubectl_is_dropped() -> None:
    content = placement("web")
    content["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "a": "b",
    }

    stored = unpack(record("ClusterResourcePlacement", content).packed)

    assert stored["metadata"]["annotations"] == {"a": "b"}


def test_of_a_snapshot_of_resources_only_the_metadata_is_stored() -> None:
    content = {
        "metadata": {
            "name": "web-3-snapshot",
            "labels": {f"{PREFIX}parent-CRP": "web"},
        },
        "spec": {
            "selectedResources": [{"kind": "Secret", "data": {"key": "c2VjcmV0"}}]
        },
    }

    stored = record("ClusterResourceSnapshot", content)

    assert set(unpack(stored.packed)) == {"apiVersion", "kind", "metadata"}
    assert (stored.columns.owner, stored.columns.number) == ("web", 3)


SECRET_PATCH = {
    "clusterResourceSelectors": [
        {"group": "", "version": "v1", "kind": "Namespace", "name": "web"}
    ],
    "policy": {
        "overrideRules": [
            {
                "jsonPatchOverrides": [
                    {"op": "add", "path": "/data/password", "value": "aHVudGVyMg=="}
                ]
            }
        ]
    },
}
SECRET_DIFFERENCE = {
    "kind": "Secret",
    "version": "v1",
    "name": "login",
    "observedDrifts": [
        {
            "path": "/data/password",
            "valueInHub": "aHVudGVyMg==",
            "valueInMember": "hunter",
        }
    ],
}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("ClusterResourceOverride", {"spec": SECRET_PATCH}),
        (
            "ClusterResourceOverrideSnapshot",
            {"spec": {"overrideHash": "a", "overrideSpec": SECRET_PATCH}},
        ),
        (
            "ClusterResourceBinding",
            {"spec": {}, "status": {"driftedPlacements": [SECRET_DIFFERENCE]}},
        ),
        (
            "ClusterResourcePlacement",
            {
                "status": {
                    "placementStatuses": [{"driftedPlacements": [SECRET_DIFFERENCE]}]
                }
            },
        ),
    ],
)
def test_values_of_secrets_are_not_stored(kind: str, content: dict[str, Any]) -> None:
    stored = unpack(record(kind, {"metadata": {"name": "x"}, **content}).packed)

    assert "hunter" not in json.dumps(stored)
    assert "aHVudGVyMg==" not in json.dumps(stored)
    assert "/data/password" in json.dumps(stored)


def test_an_object_beyond_2_mib_is_not_stored() -> None:
    content = placement("web")
    content["status"] = {"text": "x" * (LARGEST_OBJECT + 1)}

    with pytest.raises(UnusableObject, match="which no hub stores"):
        record("ClusterResourcePlacement", content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uid": None}, "metadata.uid"),
        ({"uid": "x" * 65}, "metadata.uid"),
        ({"name": ""}, "metadata.name"),
        ({"name": ["web"]}, "metadata.name"),
        ({"name": "a\0b"}, "metadata.name"),
        ({"resourceVersion": 7}, "metadata.resourceVersion"),
    ],
)
def test_an_object_without_identity_is_refused(
    change: dict[str, Any], message: str
) -> None:
    content = placement("web")
    content["metadata"] |= change

    with pytest.raises(UnusableObject, match=message):
        record("ClusterResourcePlacement", content)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "text",
        {"metadata": []},
        {"kind": "Work", "metadata": {"name": "w", "uid": "u"}},
    ],
)
def test_what_is_no_object_of_the_kind_is_refused(content: object) -> None:
    with pytest.raises(UnusableObject):
        record_of(KUBEFLEET, stream("ClusterResourcePlacement"), "v1beta1", content)


def test_an_object_nested_deeper_than_64_levels_is_refused() -> None:
    def nested(levels: int) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for _ in range(levels):
            content = {"a": content}
        return {**placement("web"), "status": content}

    assert record("ClusterResourcePlacement", nested(61)).size > 0
    with pytest.raises(UnusableObject, match="64 levels"):
        record("ClusterResourcePlacement", nested(63))


def test_a_heartbeat_alone_does_not_change_the_digest_of_a_cluster() -> None:
    first, later = member("paris"), member("paris", heartbeat="2026-11-01T10:01:00Z")
    relabeled = member("paris", heartbeat="2026-11-01T10:01:00Z", region="eu")
    unhealthy = member("paris")
    unhealthy["status"]["agentStatus"][0]["conditions"][1]["status"] = "False"

    digests = [
        record("MemberCluster", document).digest
        for document in (first, later, relabeled, unhealthy)
    ]

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert record("MemberCluster", later).columns.heartbeat == "2026-11-01T10:01:00Z"


@pytest.mark.parametrize(
    ("kind", "content", "columns"),
    [
        ("ClusterResourcePlacement", placement("web"), Columns(owner="web")),
        (
            "ResourcePlacement",
            placement("web", namespace="shop"),
            Columns(owner="shop/web"),
        ),
        (
            "ClusterSchedulingPolicySnapshot",
            snapshot("web", 4),
            Columns("web", "", 4, True),
        ),
        (
            "ClusterSchedulingPolicySnapshot",
            {
                "metadata": {
                    "name": "no-index",
                    "labels": {f"{PREFIX}policy-index": "many"},
                }
            },
            Columns(),
        ),
        (
            "ClusterResourcePlacementEviction",
            {
                "metadata": {"name": "e"},
                "spec": {"placementName": "web", "clusterName": "paris"},
            },
            Columns(owner="web", cluster="paris"),
        ),
        (
            "StagedUpdateRun",
            {
                "metadata": {"name": "run", "namespace": "shop"},
                "spec": {"placementName": "web"},
            },
            Columns(owner="shop/web"),
        ),
        (
            "ClusterResourceBinding",
            {"metadata": {"name": "b"}, "spec": {"state": 7}},
            Columns(),
        ),
        (
            "ClusterResourceBinding",
            {"metadata": {"name": "b"}, "spec": "text"},
            Columns(),
        ),
    ],
)
def test_columns_are_read_from_any_object(
    kind: str, content: dict[str, Any], columns: Columns
) -> None:
    assert record(kind, content).columns == columns
