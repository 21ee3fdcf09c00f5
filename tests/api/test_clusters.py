"""Clusters over REST: lists, manifests, labels, taints, cordon, heartbeats."""

import pytest
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from fleetui.models import Event
from placements.services.placements import save_placement
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    member_document,
    pick_n_spec,
    placement_document,
    simulated,
)

CLUSTERS = "/api/v1/clusters"

pytestmark = pytest.mark.servers


def names(answer) -> list[str]:
    """Return the names on a page."""
    return [item["name"] for item in answer.json()["items"]]


def test_next_is_the_following_page(reader: APIClient) -> None:
    all_joined("a", "b", "c")

    first = reader.get(CLUSTERS, {"limit": 2}).json()
    second = reader.get(first["next"]).json()

    assert [item["name"] for item in first["items"] + second["items"]] == [
        "a",
        "b",
        "c",
    ]
    assert second["next"] is None


def test_next_keeps_filters_and_order(reader: APIClient) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        joined(name, region="east")

    first = reader.get(f"{CLUSTERS}?q=a&label=region:east&order=-name&limit=2").json()
    second = reader.get(first["next"]).json()

    assert [item["name"] for item in first["items"] + second["items"]] == [
        "a3",
        "a2",
        "a1",
    ]


def test_every_label_has_to_be_there(reader: APIClient) -> None:
    joined("a", region="east", env="prod")
    joined("b", region="east", env="test")

    assert names(reader.get(f"{CLUSTERS}?label=region:east&label=env:prod")) == ["a"]
    assert names(reader.get(f"{CLUSTERS}?label=region")) == ["a", "b"]


def test_filters_by_state_and_verdict(api: APIClient) -> None:
    all_joined("a", "b")
    simulated("c")
    api.post(f"{CLUSTERS}/b/cordon")

    assert names(api.get(f"{CLUSTERS}?state=cordoned")) == ["b"]
    assert names(api.get(f"{CLUSTERS}?state=eligible")) == ["a", "b"]
    assert names(api.get(f"{CLUSTERS}?verdict=noAgent")) == ["c"]


def test_a_row_says_what_a_list_needs(reader: APIClient) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))

    row = reader.get(CLUSTERS).json()["items"][0]

    assert row["labels"] == {"region": "east"}
    assert (row["eligible"], row["cordoned"], row["placements"], row["revision"]) == (
        True,
        False,
        1,
        1,
    )


def test_put_lets_a_cluster_join_and_then_changes_nothing(api: APIClient) -> None:
    document = member_document("a", {"region": "east"})

    first = api.put(f"{CLUSTERS}/a", document)
    again = api.put(f"{CLUSTERS}/a", document)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["ETag"] == again.headers["ETag"]
    assert Event.objects.count() == 1


def test_what_was_got_can_be_put_back(api: APIClient) -> None:
    joined("a", region="east")
    got = api.get(f"{CLUSTERS}/a")

    put = api.put(f"{CLUSTERS}/a", got.json())

    assert (put.status_code, put.json(), put.headers["ETag"]) == (
        200,
        got.json(),
        got.headers["ETag"],
    )
    assert MemberCluster.objects.get().expects_report is False


def test_labels_are_read_replaced_and_patched(api: APIClient) -> None:
    joined("a", region="east", env="prod")

    patched = api.patch(f"{CLUSTERS}/a/labels", {"env": None, "tier": "edge"})
    put = api.put(f"{CLUSTERS}/a/labels", {"zone": "one"})

    assert patched.json() == {"region": "east", "tier": "edge"}
    assert put.json() == api.get(f"{CLUSTERS}/a/labels").json() == {"zone": "one"}


def test_labels_take_a_merge_patch_by_its_own_name(api: APIClient) -> None:
    joined("a")

    answer = api.generic(
        "PATCH",
        f"{CLUSTERS}/a/labels",
        '{"tier": "edge"}',
        content_type="application/merge-patch+json",
    )

    assert answer.json() == {"tier": "edge"}


@pytest.mark.parametrize("part", ["labels", "taints"])
def test_the_same_labels_and_taints_again_change_nothing(
    api: APIClient, part: str
) -> None:
    joined("a")
    got = api.get(f"{CLUSTERS}/a/{part}")

    put = api.put(f"{CLUSTERS}/a/{part}", got.json())

    assert (put.status_code, put.headers["ETag"]) == (200, '"1"')


def test_an_invalid_label_is_refused_with_its_path(api: APIClient) -> None:
    joined("a")

    answer = api.patch(f"{CLUSTERS}/a/labels", {"tier": "not a value!"})

    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["faults"]] == [
        "metadata.labels.tier"
    ]


def test_taints_are_replaced(api: APIClient) -> None:
    joined("a")
    taints = [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]

    put = api.put(f"{CLUSTERS}/a/taints", taints)

    assert put.json() == api.get(f"{CLUSTERS}/a/taints").json() == taints


def test_cordon_and_uncordon(api: APIClient) -> None:
    joined("a")

    cordoned = api.post(f"{CLUSTERS}/a/cordon")
    free = api.post(f"{CLUSTERS}/a/uncordon")

    assert cordoned.json()["spec"]["taints"][0]["key"] == "cordon-key"
    assert free.json()["spec"]["taints"] == []


def test_a_heartbeat_brings_health_and_readings(api: APIClient) -> None:
    joined("a")
    report = {
        "healthy": True,
        "properties": {"kubernetes-fleet.io/node-count": 3},
        "usage": {"capacity": {"cpu": "16"}, "available": {"cpu": "2500m"}},
    }

    answer = api.post(f"{CLUSTERS}/a/heartbeat", report)

    status = api.get(f"{CLUSTERS}/a").json()["status"]
    assert answer.json()["eligible"] is True
    assert status["properties"] == {"kubernetes-fleet.io/node-count": {"value": "3"}}
    assert status["resourceUsage"]["available"] == {"cpu": "2500m"}
    assert status["agentStatus"][0]["conditions"][1]["status"] == "True"


def test_a_heartbeat_with_faults_says_all_of_them(api: APIClient) -> None:
    joined("a")

    answer = api.post(
        f"{CLUSTERS}/a/heartbeat", {"healthy": "yes", "properties": {"x": []}, "odd": 1}
    )

    assert answer.status_code == 422
    assert {error["path"] for error in answer.json()["faults"]} == {
        "healthy",
        "properties.x",
        "odd",
    }


def test_delete_sends_a_cluster_out(api: APIClient) -> None:
    joined("a")

    answer = api.delete(f"{CLUSTERS}/a")

    assert answer.status_code == 202
    assert MemberCluster.objects.get().membership == "leaving"


def test_bindings_of_a_cluster_name_placement_and_decision(reader: APIClient) -> None:
    joined("a")
    for name in ("web", "db"):
        decided(name, pick_n_spec(1))

    items = reader.get(f"{CLUSTERS}/a/bindings").json()["items"]

    assert [item["placement"] for item in items] == ["db", "web"]
    assert reader.get(f"/api/v1/decisions/{items[0]['decision']}").status_code == 200


def test_an_unknown_cluster_is_a_problem(reader: APIClient) -> None:
    answer = reader.get(f"{CLUSTERS}/missing")

    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"] == "cluster 'missing' not found"


def test_a_document_of_another_name_is_refused(api: APIClient) -> None:
    answer = api.put(f"{CLUSTERS}/a", member_document("b"))

    assert answer.status_code == 422
    assert answer.json()["faults"][0]["path"] == "metadata.name"
    assert MemberCluster.objects.count() == 0


def test_a_cluster_holds_what_a_placement_put_there(reader: APIClient) -> None:
    joined("a")
    save_placement(placement_document("web", pick_n_spec(1)), by=None, now=NOW)

    assert reader.get(f"{CLUSTERS}/a/bindings").json() == {"items": [], "next": None}
    assert reader.get(f"{CLUSTERS}/b/bindings").status_code == 404
