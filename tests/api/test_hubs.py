"""Live hubs over REST: who may do what, what is shown, and that no secret is."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from clusters.models import Hub, HubGrant, HubStream
from fleetui.hub_scope import in_hub
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub
from tests.hubs.test_connecting import kubeconfig
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import watching
from tests.live_hubs import live_hub
from tests.rows import person

pytestmark = pytest.mark.django_db
HUBS = "/api/v1/hubs"
Caller = Callable[..., APIClient]


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    settings.MEMBER_LOOPBACK = True


@pytest.fixture
def served() -> Iterator[tuple[FakeHub, LocalServer]]:
    with serve_hub(hub_with_content()) as found:
        yield found


@pytest.fixture
def admin(caller: Caller) -> APIClient:
    return caller("cluster-administrator")


def body(server: LocalServer, **changes: Any) -> dict[str, Any]:
    return {
        "name": "prod-eu",
        "connection": {"kubeconfig": json.dumps(kubeconfig(server.url))},
        **changes,
    }


@pytest.mark.nightly
def test_a_hub_is_added_read_changed_and_removed(
    admin: APIClient, served: tuple[FakeHub, LocalServer]
) -> None:
    created = admin.post(HUBS, body(served[1], title="Production"))

    assert created.status_code == 201, created.content
    assert [step["ok"] for step in created.json()["connection"]["steps"]] == [True] * 8
    shown = admin.get(f"{HUBS}/prod-eu").json()
    assert (shown["title"], shown["mode"], shown["state"], shown["ageSeconds"]) == (
        "Production",
        "read",
        "new",
        None,
    )
    assert shown["connection"]["server"] == served[1].url
    assert len(shown["connection"]["caFingerprints"]) == 1
    assert shown["connection"]["credential"]["kind"] == "token"
    assert [item["name"] for item in admin.get(HUBS).json()["items"]] == ["prod-eu"]

    changed = admin.patch(f"{HUBS}/prod-eu", {"mode": "operate", "paused": True}).json()
    assert (changed["mode"], changed["state"], changed["paused"]) == (
        "operate",
        "paused",
        True,
    )

    assert admin.delete(f"{HUBS}/prod-eu").status_code == 204
    assert admin.get(f"{HUBS}/prod-eu").status_code == 404
    assert (
        admin.post(HUBS, body(served[1])).status_code == 201
    )  # the name is free again


def test_credentials_are_replaced_and_never_shown(
    admin: APIClient, served: tuple[FakeHub, LocalServer]
) -> None:
    admin.post(HUBS, body(served[1]))
    served[0].token = "another-token"
    connection = {
        "server": served[1].url,
        "ca": authority().pem,
        "token": "another-token",
    }

    replaced = admin.patch(f"{HUBS}/prod-eu", {"connection": connection})

    assert replaced.status_code == 200, replaced.content
    texts = [
        replaced.content,
        admin.get(f"{HUBS}/prod-eu").content,
        admin.get("/api/v1/events").content,
    ]
    assert not any(
        secret in text
        for text in texts
        for secret in (TOKEN.encode(), b"another-token")
    )
    assert Hub.objects.get(name="prod-eu").credential.revision == 2


def test_a_failed_check_needs_a_confirmation(
    admin: APIClient, served: tuple[FakeHub, LocalServer]
) -> None:
    served[0].denied = {"list memberclusters"}

    refused = admin.post(HUBS, body(served[1]))
    assert (refused.status_code, refused.json()["confirm"]) == (409, "failed-check")
    assert not Hub.objects.filter(name="prod-eu").exists()
    assert (
        admin.post(f"{HUBS}?confirm=failed-check", body(served[1])).status_code == 201
    )


def test_bad_input_is_refused(
    admin: APIClient, served: tuple[FakeHub, LocalServer]
) -> None:
    admin.post(HUBS, body(served[1]))
    exec_config = kubeconfig(served[1].url, exec={"command": "az"})

    for wanted, status, path in (
        (body(served[1]), 409, None),
        (body(served[1], name="Prod EU"), 422, "name"),
        (body(served[1], name="local"), 422, "name"),
        (body(served[1], name="b", mode="write"), 422, "mode"),
        (
            body(
                served[1], name="b", connection={"kubeconfig": json.dumps(exec_config)}
            ),
            422,
            "kubeconfig.users[0].user.exec",
        ),
        ({"name": "b"}, 422, "connection"),
        (body(served[1], name="b", owner="x"), 422, "owner"),
    ):
        answer = admin.post(HUBS, wanted)
        assert answer.status_code == status, answer.content
        if path:
            assert [fault["path"] for fault in answer.json()["faults"]] == [path]
    assert admin.get(f"{HUBS}/nowhere").status_code == 404
    assert admin.get(f"{HUBS}?x=1").status_code == 400


@pytest.mark.nightly
def test_roles(caller: Caller, served: tuple[FakeHub, LocalServer]) -> None:
    caller("cluster-administrator").post(HUBS, body(served[1]))

    for role in ("viewer", "operator", "approver"):
        client = caller(role)
        shown = client.get(f"{HUBS}/prod-eu")
        assert shown.status_code == 200
        assert "connection" not in shown.json()
        assert client.post(HUBS, body(served[1], name="b")).status_code == 403
        assert client.patch(f"{HUBS}/prod-eu", {"paused": True}).status_code == 403
        assert client.post(f"{HUBS}/prod-eu/check").status_code == 403
        assert client.delete(f"{HUBS}/prod-eu").status_code == 403
    assert caller().get(HUBS).status_code == 403


@pytest.mark.nightly
def test_a_hub_with_grants_is_there_only_for_these_groups(
    caller: Caller, served: tuple[FakeHub, LocalServer]
) -> None:
    caller("cluster-administrator").post(HUBS, body(served[1]))
    hub, group = Hub.objects.get(name="prod-eu"), Group.objects.get(name="approver")
    HubGrant.objects.create(hub=hub, group=group, role="viewer")

    viewer = caller("viewer")
    assert viewer.get(HUBS).json()["items"] == []
    for path in ("", "/streams", "/permissions", "/objects/-/Namespace/-/shop"):
        assert viewer.get(f"{HUBS}/prod-eu{path}").status_code == 404
    assert caller("approver").get(f"{HUBS}/prod-eu").status_code == 200


def test_check_streams_permissions_and_objects(caller: Caller) -> None:
    with watching(hub_with_content()) as run:
        run.work_until_state("live")
        run.work_until_equal()
        run.work_until(lambda: run.stream("memberclusters").heard_at)
        admin, viewer = caller("cluster-administrator"), caller("viewer")

        check = admin.post(f"{HUBS}/prod-eu/check").json()
        assert check["passed"], check
        permissions = viewer.get(f"{HUBS}/prod-eu/permissions").json()
        assert permissions == check["permissions"]

        streams = viewer.get(f"{HUBS}/prod-eu/streams").json()["items"]
        clusters = next(
            stream for stream in streams if stream["kind"] == "MemberCluster"
        )
        assert (len(streams), clusters["state"], clusters["objects"]) == (
            22,
            "watching",
            3,
        )
        shown = viewer.get(f"{HUBS}/prod-eu").json()
        assert (shown["state"], shown["clusters"], shown["placements"]) == (
            "live",
            3,
            2,
        )
        assert shown["ageSeconds"] < 60

        def reads() -> list[str]:
            """Return what was read besides lists, watches and the version, which the watcher asks for."""
            return [
                seen.plural
                for seen in run.fake.seen
                if seen.verb == "get" and seen.plural != "/version"
            ]

        before = reads()
        path = "objects/placement.kubernetes-fleet.io/ResourcePlacement/shop/web"
        assert (
            viewer.get(f"{HUBS}/prod-eu/{path}").json()["metadata"]["namespace"]
            == "shop"
        )
        assert (
            viewer.get(f"{HUBS}/prod-eu/objects/-/Namespace/-/shop").status_code == 200
        )
        assert (
            viewer.get(f"{HUBS}/prod-eu/objects/-/Namespace/-/gone").status_code == 404
        )
        assert reads() == before


def test_the_api_of_an_unknown_hub_is_a_problem_document(caller: Caller) -> None:
    hidden = live_hub("hidden")
    HubGrant.objects.create(
        hub=hidden, group=Group.objects.create(name="team"), role="viewer"
    )
    viewer = caller("viewer")
    in_browser = Client()
    in_browser.force_login(person("vera", "viewer"))

    answers: list[Any] = [
        viewer.get("/hubs/nowhere/api/v1/clusters"),
        viewer.post("/hubs/nowhere/api/v1/apply"),
    ]
    # A hub of which a person is to know nothing answers as one that does not exist.
    answers += [
        viewer.get("/hubs/hidden/api/v1/clusters"),
        in_browser.get("/hubs/hidden/api/v1/clusters"),
    ]

    assert {answer.status_code for answer in answers} == {404}
    assert {answer.headers["Content-Type"] for answer in answers} == {
        "application/problem+json"
    }
    assert [json.loads(answer.content) for answer in answers] == [
        json.loads(answers[0].content)
    ] * 4
    assert "<html" in in_browser.get("/hubs/nowhere/clusters/").content.decode()


@pytest.mark.nightly
def test_lists_of_hubs_take_as_many_queries_for_many_as_for_one(
    admin: APIClient,
) -> None:
    browser = Client()
    browser.force_login(person("vera", "viewer"))
    counts = []
    for names in (["one"], ["two", "three", "four"]):
        for name in names:
            hub = live_hub(name)
            with in_hub(hub.pk):
                for required in (True, False):
                    HubStream.objects.create(
                        kind="MemberCluster",
                        plural=f"p{required}",
                        form="full",
                        is_required=required,
                        object_count=2,
                    )
        for client, address in ((admin, HUBS), (browser, "/hubs/")):
            client.get(address)
            with CaptureQueriesContext(connection) as found:
                assert client.get(address).status_code == 200
            counts.append(len(found))

    assert counts[:2] == counts[2:]
    assert [item["clusters"] for item in admin.get(HUBS).json()["items"]] == [4] * 4
