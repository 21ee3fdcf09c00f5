"""PUT, PATCH and DELETE below the address of a live hub become writes to it (`rules/live-hub.md#sending`)."""

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rest_framework.test import APIClient

from clusters.models import HubWrite, MirroredObject
from fleetui.hub_scope import in_hub
from tests.hubs.hub_documents import budget, override, placement
from tests.hubs.writable import WritableHub, find_plural, writable_hub

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("hub")]
Caller = Callable[..., APIClient]
WEB = "/hubs/prod-eu/api/v1/placements/web"
FORCE = "force=spec.policy.numberOfClusters"
PROBLEM = "urn:fleetui:problem:"


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    """Serve a hub whose mirror has the UIDs and the versions of its objects."""
    with writable_hub() as found:
        with in_hub(found.hub.pk):
            for row in MirroredObject.objects.exclude(kind="ClusterResourceBinding"):
                live = found.fake.get(find_plural(row.kind), row.name)
                row.manifest = zlib.compress(json.dumps(live).encode())
                row.save()
        yield found


def scaled(document: dict[str, Any], number: int) -> dict[str, Any]:
    policy = {**document["spec"]["policy"], "numberOfClusters": number}
    return {**document, "spec": {**document["spec"], "policy": policy}}


def record_of(answer: Any) -> HubWrite:
    return HubWrite._base_manager.get(pk=answer.headers["X-FleetUI-Hub-Write"])


@pytest.mark.nightly
def test_what_was_read_can_be_changed_and_put_back(
    hub: WritableHub, caller: Caller
) -> None:
    client, live = caller("operator"), hub.fake.get("clusterresourceplacements", "web")
    read = client.get(WEB)
    document = read.json()

    unchanged = client.put(WEB, document, format="json")
    tried = client.put(f"{WEB}?dryRun=All&{FORCE}", scaled(document, 5), format="json")
    before = hub.sent()
    done = client.put(
        f"{WEB}?{FORCE}", scaled(document, 5), format="json", HTTP_IF_MATCH=read["ETag"]
    )

    assert {key: document["metadata"][key] for key in ("uid", "resourceVersion")} == {
        key: live["metadata"][key] for key in ("uid", "resourceVersion")
    }
    assert (unchanged.status_code, tried.status_code, before) == (200, 200, [])
    assert tried.json()["spec"]["policy"]["numberOfClusters"] == 5
    assert done.status_code == 200, done.content
    assert (record_of(done).requested_by, record_of(done).state) == (
        "operator",
        "accepted",
    )
    stored = hub.fake.get("clusterresourceplacements", "web")
    assert stored["spec"]["policy"]["numberOfClusters"] == 5
    assert done["ETag"] == f'"{stored["metadata"]["resourceVersion"]}"'


def test_an_outdated_version_or_another_object_is_refused_without_a_write(
    hub: WritableHub, caller: Caller
) -> None:
    client = caller("operator")
    document = scaled(client.get(WEB).json(), 5)
    other = {**document, "metadata": {**document["metadata"], "uid": "another"}}
    web = hub.fake.get("clusterresourceplacements", "web")
    web["metadata"]["labels"] = {"team": "other"}
    hub.fake.put("clusterresourceplacements", web)

    by_document = client.put(f"{WEB}?{FORCE}", document, format="json")
    by_header = client.patch(
        f"{WEB}?{FORCE}",
        {"spec": {"policy": {"numberOfClusters": 5}}},
        HTTP_IF_MATCH='"1"',
        format="json",
    )
    by_uid = client.put(f"{WEB}?{FORCE}", other, format="json")

    assert (by_document.status_code, by_document.json()["type"]) == (
        409,
        f"{PROBLEM}stale-edit",
    )
    assert "metadata.labels" in by_document.json()["detail"]
    assert by_header.status_code == 412
    assert (by_uid.status_code, "metadata.uid" in by_uid.json()["detail"]) == (
        409,
        True,
    )
    assert hub.sent() == []


@pytest.mark.nightly
def test_a_merge_patch_names_the_paths_that_other_managers_own(caller: Caller) -> None:
    client, patch = caller("operator"), {"spec": {"policy": {"numberOfClusters": 7}}}

    refused = client.patch(WEB, patch, format="json")
    forced = client.generic(
        "PATCH",
        f"{WEB}?{FORCE}",
        '{"spec":{"policy":{"numberOfClusters":7}}}',
        content_type="application/merge-patch+json",
    )

    assert (refused.status_code, refused.json()["type"]) == (
        409,
        f"{PROBLEM}hub-conflict",
    )
    [conflict] = refused.json()["conflicts"]
    assert (conflict["path"], conflict["manager"]) == (
        "spec.policy.numberOfClusters",
        "kubectl",
    )
    assert (conflict["ours"], conflict["theirs"]) == (7, 2)
    assert forced.json()["spec"]["policy"]["numberOfClusters"] == 7


def test_patches_one_after_another_do_not_wait_for_the_mirror(
    hub: WritableHub, caller: Caller
) -> None:
    """The console's own write is no conflict; the mirror learns of it a moment later."""
    client, numbers = caller("operator"), (7, 8, 9)

    answers = [
        client.patch(
            f"{WEB}?{FORCE}",
            {"spec": {"policy": {"numberOfClusters": number}}},
            format="json",
        )
        for number in numbers
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 200], answers[
        -1
    ].content
    stored = hub.fake.get("clusterresourceplacements", "web")
    assert stored["spec"]["policy"]["numberOfClusters"] == 9
    assert [
        document["requested_by"]
        for document in HubWrite._base_manager.values("requested_by")
    ] == ["operator"] * 3


def test_other_kinds_are_created_and_deleted_and_clusters_labelled(
    hub: WritableHub, caller: Caller
) -> None:
    client, root = caller("operator"), "/hubs/prod-eu/api/v1"
    version = {"apiVersion": "placement.kubernetes-fleet.io/v1beta1"}
    tuned = {**version, "kind": "ClusterResourceOverride", **override("tuned")}
    limited = {
        **version,
        "kind": "ClusterResourcePlacementDisruptionBudget",
        **budget("web", minAvailable=1),
    }
    new = {**version, "kind": "ClusterResourcePlacement", **placement("new")}
    created = [
        client.put(f"{root}/{path}", document, format="json")
        for path, document in (
            ("placements/new", new),
            ("overrides/ClusterResourceOverride/-/tuned", tuned),
            ("placements/web/budget", limited),
        )
    ]
    tried = client.delete(f"{WEB}?dryRun=All")
    kept = hub.fake.get("clusterresourceplacements", "web")
    deleted = client.delete(WEB)
    labelled = client.patch(
        f"{root}/clusters/east/labels", {"tier": "gold"}, format="json"
    )
    evicted = client.post(
        f"{root}/placements/web/evict", {"cluster": "east"}, format="json"
    )

    assert [response.status_code for response in created] == [201, 201, 201], [
        response.content for response in created
    ]
    assert (tried.status_code, bool(kept)) == (204, True)
    assert (deleted.status_code, record_of(deleted).verb) == (204, "delete")
    assert (
        hub.fake.get("memberclusters", "east")["metadata"]["labels"]["tier"] == "gold"
    )
    assert (labelled.status_code, record_of(labelled).kind) == (200, "MemberCluster")
    assert evicted.status_code == 404  # the placement was deleted before


def test_only_operators_of_a_hub_in_mode_operate_write(
    hub: WritableHub, caller: Caller
) -> None:
    patch = {"spec": {"policy": {"numberOfClusters": 7}}}

    by_viewer, operator = (
        caller("viewer").patch(WEB, patch, format="json"),
        caller("operator"),
    )
    hub.change(mode="read")
    read_only = operator.patch(WEB, patch, format="json")
    local = operator.put(
        "/api/v1/placements/new?force=spec", placement("new"), format="json"
    )

    assert by_viewer.status_code == 403
    assert (read_only.status_code, read_only.json()["type"]) == (
        409,
        f"{PROBLEM}not-writable",
    )
    assert (local.status_code, local.json()["faults"][0]["path"]) == (400, "force")
    assert hub.sent() == []
