"""Writes to live hubs over REST: preview, send, list, refusals, roles.

See `rules/live-hub.md#actions-on-a-hub`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from rest_framework.test import APIClient

from clusters.models import HubGrant, HubWrite
from fleetui.access.models import TeamGrant
from fleetui.hub_scope import in_hub
from tests.hubs.hub_documents import placement
from tests.hubs.writable import WritableHub, writable_hub

pytestmark = pytest.mark.django_db
WRITES = "/api/v1/hubs/prod-eu/writes"
Caller = Callable[..., APIClient]
EVERY_ACTION: dict[str, dict[str, Any]] = {
    "save": {
        "manifest": {
            **placement("new"),
            "kind": "ClusterResourcePlacement",
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        }
    },
    "scale": {"name": "web", "numberOfClusters": 5},
    "delete": {"kind": "ClusterResourcePlacement", "name": "web"},
    "labels": {"name": "east", "labels": {"tier": "gold"}},
    "taints": {"name": "east", "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    "cordon": {"name": "east"},
    "uncordon": {"name": "west"},
    "evict": {"placement": "web", "cluster": "east"},
    "start-run": {"placement": "web", "strategy": "stages"},
    "run-state": {"name": "run", "state": "Stop"},
    "abandon-run": {"name": "run"},
    "approve": {"name": "run-after-canary"},
}


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with writable_hub() as found:
        strategy = {
            "metadata": {"name": "stages"},
            "spec": {"stages": [{"name": "canary"}]},
        }
        found.put("ClusterStagedUpdateStrategy", strategy)
        spec = {
            "placementName": "other",
            "stagedRolloutStrategyName": "stages",
            "state": "Run",
        }
        found.put("ClusterStagedUpdateRun", {"metadata": {"name": "run"}, "spec": spec})
        spec = {"parentStageRollout": "run", "targetStage": "canary"}
        found.put(
            "ClusterApprovalRequest",
            {"metadata": {"name": "run-after-canary"}, "spec": spec},
        )
        yield found


def send(client: APIClient, action: str, query: str = "", **fields: Any) -> Any:
    body = {"action": action, **(fields or EVERY_ACTION[action])}
    return client.post(f"{WRITES}{query}", body, format="json")


@pytest.mark.nightly
def test_every_action_is_previewed_without_a_write_and_then_sent(
    hub: WritableHub, caller: Caller, subtests: pytest.Subtests
) -> None:
    client = caller("operator", "approver")
    for action in (*(one for one in EVERY_ACTION if one != "delete"), "delete"):
        with subtests.test(action):
            count = len(hub.sent())
            query = "?force=spec.policy.numberOfClusters"
            preview = send(client, action, f"{query}&dryRun=All")
            assert preview.status_code == 200, preview.content
            assert len(hub.sent()) == count

            done = send(client, action, query)
            if action == "uncordon":
                assert preview.json()["unchanged"]
                assert (done.status_code, "X-FleetUI-Hub-Write" in done.headers) == (
                    200,
                    False,
                )
                continue
            assert done.status_code == 201, done.content
            assert len(hub.sent()) == count + 1
            row = HubWrite._base_manager.get(pk=done.headers["X-FleetUI-Hub-Write"])
            assert (row.state, row.hub_id) == ("accepted", hub.hub.pk)

    approval = hub.fake.get("clusterapprovalrequests", "run-after-canary")
    [condition] = approval["status"]["conditions"]
    assert (
        condition["type"],
        condition["status"],
        condition["reason"],
        condition["observedGeneration"],
    ) == (*("Approved", "True", "ApprovedInFleetUI", 1),)
    [eviction] = hub.fake.objects[
        "placement.kubernetes-fleet.io", "clusterresourceplacementevictions"
    ].values()
    assert eviction["spec"] == {"placementName": "web", "clusterName": "east"}
    assert eviction["metadata"]["name"].startswith("fleetui-web-east-")


@pytest.mark.nightly
def test_writes_are_listed_newest_first_and_filtered(
    hub: WritableHub, caller: Caller
) -> None:
    client = caller("operator")
    for action in ("labels", "cordon", "scale"):
        send(client, action, "?force=spec.policy.numberOfClusters")
    assert len(hub.sent()) == 3

    first = client.get(WRITES, {"limit": 2}).json()
    assert [(item["kind"], item["verb"]) for item in first["items"]] == [
        ("ClusterResourcePlacement", "apply"),
        ("MemberCluster", "patch"),
    ]
    rest = client.get(first["next"]).json()
    assert [item["name"] for item in rest["items"]] == ["east"]
    assert rest["next"] is None
    assert len(client.get(WRITES, {"kind": "MemberCluster"}).json()["items"]) == 2
    assert client.get(WRITES, {"by": "no-role"}).json()["items"] == []
    assert client.get(WRITES, {"colour": "red"}).status_code == 400
    assert client.get(WRITES, {"state": "lost"}).status_code == 400


def test_a_conflict_lists_paths_with_their_owners(
    hub: WritableHub, caller: Caller
) -> None:
    answer = send(caller("operator"), "scale")

    assert answer.status_code == 409
    problem = answer.json()
    assert problem["type"] == "urn:fleetui:problem:hub-conflict"
    assert problem["conflicts"] == [
        {
            "path": "spec.policy.numberOfClusters",
            "manager": "kubectl",
            "operation": "Update",
            "time": "2026-11-01T10:00:00Z",
            "ours": 5,
            "theirs": 2,
        }
    ]
    assert hub.writes() == []


@pytest.mark.nightly
def test_refusals_are_in_the_words_of_the_hub(hub: WritableHub, caller: Caller) -> None:
    client = caller("operator")
    hub.fake.webhooks.append(lambda *_: "not on a Friday")
    answer = send(client, "cordon")
    assert answer.status_code == 403
    status = answer.json()["hubStatus"]
    assert (status["code"], status["reason"], status["webhook"]) == (
        403,
        "webhook",
        "vcrp.kb.io",
    )
    assert "not on a Friday" in answer.json()["detail"]

    hub.change(mode="read")
    for query in ("", "?dryRun=All"):
        answer = send(client, "cordon", query)
        assert (answer.status_code, answer.json()["type"]) == (
            409,
            "urn:fleetui:problem:not-writable",
        )
    assert hub.sent() == []


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"action": "explode"}, "action"),
        ({}, "action"),
        ({"action": "scale", "name": "web"}, "numberOfClusters"),
        (
            {"action": "scale", "name": "web", "numberOfClusters": -1},
            "numberOfClusters",
        ),
        (
            {"action": "scale", "name": "web", "numberOfClusters": True},
            "numberOfClusters",
        ),
        ({"action": "cordon", "name": "a/b"}, "name"),
        ({"action": "cordon", "name": ["east"]}, "name"),
        ({"action": "cordon", "name": "east", "force": True}, "force"),
        ({"action": "delete", "kind": "ClusterResourceBinding", "name": "x"}, "kind"),
        (
            {"action": "delete", "kind": "ResourcePlacement", "name": "x"},
            "metadata.namespace",
        ),
        ({"action": "save", "manifest": {"kind": "Work"}}, "kind"),
        ({"action": "save", "manifest": []}, "manifest"),
        (
            {
                "action": "taints",
                "name": "east",
                "taints": [{"key": "a b", "effect": "NoSchedule"}],
            },
            "spec.taints[0].key",
        ),
        (
            {"action": "labels", "name": "east", "labels": {"a b": "c"}},
            'metadata.labels["a b"]',
        ),
        ({"action": "run-state", "name": "run", "state": "Initialize"}, "state"),
        (
            {"action": "evict", "placement": "web", "cluster": "east", "eviction": "x"},
            "eviction",
        ),
        ({"action": "approve", "name": "run-after-canary", "at": "yesterday"}, "at"),
    ],
)
def test_bad_input_names_the_field_and_sends_nothing(
    hub: WritableHub, caller: Caller, body: dict[str, Any], path: str
) -> None:
    answer = caller("operator", "approver").post(WRITES, body, format="json")

    assert answer.status_code == 422, answer.content
    assert path in [fault["path"] for fault in answer.json()["faults"]]
    assert hub.sent() == []


@pytest.mark.parametrize(
    "roles", [(), ("viewer",), ("cluster-administrator",), ("approver",), ("operator",)]
)
def test_each_action_needs_its_role(
    hub: WritableHub, caller: Caller, roles: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    client = caller(*roles)
    for action in EVERY_ACTION:
        needed = "approver" if action == "approve" else "operator"
        for query in ("?dryRun=All", ""):
            with subtests.test(action, query=query):
                answer = send(
                    client,
                    action,
                    f"{query}{'&' if query else '?'}force=spec.policy.numberOfClusters",
                )
                assert (answer.status_code == 403) == (roles != (needed,)), (
                    answer.content
                )
    assert bool(hub.sent()) == (roles in (("approver",), ("operator",)))
    assert client.get(WRITES).status_code == (200 if roles else 403)


def test_a_team_writes_only_what_has_its_label(
    hub: WritableHub, caller: Caller, subtests: pytest.Subtests
) -> None:
    client = caller()
    group = Group.objects.create(name="payments")
    group.user_set.add(User.objects.get(username="no-role"))
    for role in ("operator", "approver"):
        TeamGrant.objects.create(
            hub=hub.hub, group=group, role=role, key="team", value="payments"
        )
    for action in EVERY_ACTION:
        with subtests.test(action):
            assert send(client, action).status_code == (
                200 if action == "uncordon" else 403
            )  # unchanged
    assert hub.sent() == []

    web = hub.fake.get("clusterresourceplacements", "web")
    ours = {**web, "metadata": {**web["metadata"], "labels": {"team": "payments"}}}
    ours = hub.put("ClusterResourcePlacement", ours)

    refused = send(client, "scale", "?force=spec.policy.numberOfClusters")
    assert (
        "The grant of team=payments does not include the namespace web."
        in refused.json()["detail"]
    )
    assert send(client, "evict").status_code == 403
    TeamGrant.objects.update(namespaces="web")
    assert (
        send(client, "scale", "?force=spec.policy.numberOfClusters").status_code == 201
    )
    assert send(client, "evict").status_code == 201
    TeamGrant.objects.update(clusters="region=east")
    assert send(client, "evict").status_code == 403
    assert send(client, "cordon").status_code == 403
    theirs = {**ours, "metadata": {**ours["metadata"], "labels": {"team": "other"}}}
    assert send(client, "save", manifest=theirs, base=ours).status_code == 403


@pytest.mark.nightly
def test_grants_of_the_hub_decide_alone(hub: WritableHub, caller: Caller) -> None:
    HubGrant.objects.create(
        hub=hub.hub, group=Group.objects.get(name="viewer"), role="operator"
    )

    assert send(caller("operator"), "cordon").status_code == 404
    assert send(caller("viewer"), "cordon").status_code == 201
    with in_hub(hub.hub.pk):
        assert HubWrite.objects.count() == 1


def test_an_unknown_outcome_is_no_success(hub: WritableHub, caller: Caller) -> None:
    hub.fake.fault("cut-before", "patch")

    answer = send(caller("operator"), "cordon")

    assert answer.status_code == 202, answer.content
    assert answer.json()["state"] == "unknown"
    [row] = hub.writes()
    assert (row.state, answer.headers["X-FleetUI-Hub-Write"]) == (
        "unknown",
        str(row.pk),
    )
