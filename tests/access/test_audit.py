"""The access log: what is written, the lines of the process, pruning, the page and REST."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from fleetui.access.audit import json_lines, prune_lines, record_access
from fleetui.access.models import AccessEvent
from placements.services.resources.operations import apply_resources
from tests.commands import call_command
from tests.rows import NOW, api_token, config_map, joined, namespace, person

PASSWORD = "a long enough password"
pytestmark = pytest.mark.django_db


def lines(verb: str) -> list[AccessEvent]:
    return list(AccessEvent.objects.filter(verb=verb).order_by("pk"))


def written(count: int) -> None:
    """Write lines, an hour apart."""
    for number in range(count):
        record_access(
            "refused", f"line {number}", by="ana", now=NOW + timedelta(hours=number)
        )


@pytest.mark.usefixtures("collected_static")
def test_logins_and_failures_have_who_where_and_which_request() -> None:
    person("ann", "viewer")
    client = Client(REMOTE_ADDR="10.1.2.3")

    failed = client.post("/login/", {"username": "ann", "password": "wrong"})
    client.post("/login/", {"username": "ann", "password": PASSWORD})
    client.post("/logout/")

    found = AccessEvent.objects.exclude(verb="roles changed").order_by("pk")
    assert [event.verb for event in found] == [
        "login failed",
        "logged in",
        "logged out",
    ]
    assert {(event.actor_name, event.address) for event in found} == {
        ("ann", "10.1.2.3")
    }
    assert found[0].request_id == failed.headers["X-Request-ID"]
    assert "wrong" not in str(found.values())
    assert found[1].details == {}, "all logins have the same class of Django"


@pytest.mark.usefixtures("collected_static")
def test_refused_actions_are_written_once_a_minute() -> None:
    joined("a")
    client = Client()
    client.force_login(person("vera", "viewer"))
    token = {"Authorization": f"Token {api_token(person('bob', 'viewer'))}"}

    for _ in range(3):
        client.post("/clusters/a/cordon/")
        Client().post("/api/v1/clusters/a/cordon", headers=token)

    assert [(line.actor_name, line.subject) for line in lines("refused")] == [
        ("vera", "POST /clusters/a/cordon/"),
        ("bob", "POST /api/v1/clusters/a/cordon"),
    ]


@pytest.mark.usefixtures("collected_static")
def test_changes_of_access_are_written() -> None:
    root, ann = (
        User.objects.create_superuser("root", password=PASSWORD),
        person("ann", "viewer"),
    )
    client = Client()
    client.force_login(root)
    fields = {"username": "ann", "is_active": "on", "is_superuser": "on"}
    times = {"date_joined_0": "2026-11-20", "date_joined_1": "12:00:00"}

    answer = client.post(f"/admin/auth/user/{ann.pk}/change/", {**fields, **times})

    assert answer.status_code == 302
    [role] = [line for line in lines("roles changed") if line.details.get("removed")]
    assert (role.actor_name, role.subject, role.details) == (
        "root",
        "ann",
        {"removed": ["viewer"]},
    )
    [account] = lines("account changed")
    assert "Superuser status" in account.details["changed"]
    ann.user_permissions.add(Permission.objects.get(codename="view_secrets"))
    [permission] = lines("permissions changed")
    assert permission.details == {"added": ["view_secrets"]}


@pytest.mark.usefixtures("collected_static")
def test_reads_of_secret_values_are_written() -> None:
    secret = {**config_map("key"), "kind": "Secret", "data": {"key": "cGxhbnRlZA=="}}
    apply_resources([namespace("shop"), secret, config_map("plain")], by=None, now=NOW)
    ann = person("ann", "viewer")
    headers = {"Authorization": f"Token {api_token(ann)}"}

    hidden = Client().get("/api/v1/resources/core/Secret/shop/key", headers=headers)
    ann.user_permissions.add(Permission.objects.get(codename="view_secrets"))
    shown = Client().get("/api/v1/resources/core/Secret/shop/key", headers=headers)
    Client().get("/api/v1/resources/core/ConfigMap/shop/plain", headers=headers)
    call_command("export", "resources", stdout=StringIO())
    call_command("export", "placements", stdout=StringIO())

    assert ("cGxhbnRlZA==" in hidden.text, "cGxhbnRlZA==" in shown.text) == (
        False,
        True,
    )
    assert [
        (line.actor_name, line.subject) for line in lines("secret values read")
    ] == [
        ("ann", "Secret shop/key"),
        ("system", "Secret shop/key"),
    ]


@pytest.mark.usefixtures("collected_static")
def test_what_a_request_causes_is_in_the_log_of_the_process_once_it_is_committed(
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Any,
) -> None:
    person("ann", "viewer")
    record_access(
        "secret values read", "Secret shop/key"
    )  # by a command, on a terminal

    with (
        caplog.at_level("INFO", "fleetui.access"),
        django_capture_on_commit_callbacks(execute=True),
    ):
        Client(REMOTE_ADDR="10.1.2.3").post(
            "/login/", {"username": "ann\nroot", "password": "wrong"}
        )
        assert not any(message.startswith("access ") for message in caplog.messages)

    [line] = [message for message in caplog.messages if message.startswith("access ")]
    row = AccessEvent.objects.get(verb="login failed")
    found = json.loads(line.removeprefix("access "))
    assert (found["actor"], found["address"], "\n" in line) == (
        "ann\nroot",
        "10.1.2.3",
        False,
    )
    assert found["requestId"] == row.request_id


def test_pruning_removes_what_is_too_old() -> None:
    written(6)

    with override_settings(KEEP_ACCESS_LOG=timedelta(hours=3)):
        pruned = prune_lines(now=NOW + timedelta(hours=6))

    assert pruned == 3
    kept = AccessEvent.objects.order_by("at").values_list("subject", flat=True)
    assert list(kept) == ["line 3", "line 4", "line 5"]


@pytest.mark.usefixtures("collected_static")
def test_the_page_is_for_those_with_the_permission_and_filters() -> None:
    written(2)
    record_access("token created", "deploy of bob", by="bob")
    vera, auditor = person("vera", "viewer"), person("ada", "viewer")
    auditor.user_permissions.add(Permission.objects.get(codename="view_access_log"))
    client = Client()
    client.force_login(vera)
    assert client.get("/access-log/").status_code == 403
    assert client.get("/access-log/export/").status_code == 403
    assert "/access-log/" not in client.get("/account/").content.decode()
    client.force_login(auditor)

    page = client.get("/access-log/?verb=token+created").content.decode()
    export = client.get("/access-log/export/?by=ana")
    content = b"".join(export.streaming_content).decode()  # type: ignore[attr-defined]  # it is streamed

    assert "deploy of bob" in page
    assert "line 1" not in page
    assert [json.loads(line)["subject"] for line in content.splitlines()] == [
        "line 0",
        "line 1",
    ]
    assert "/access-log/" in client.get("/account/").content.decode()


@pytest.mark.usefixtures("collected_static")
def test_rest_lists_what_the_page_shows_to_those_who_may_view_it() -> None:
    written(3)
    record_access(
        "token created", "deploy of bob", by="bob", details={"scopes": ["read"]}
    )
    auditor, vera = person("ada", "viewer"), person("vera", "viewer")
    auditor.user_permissions.add(Permission.objects.get(codename="view_access_log"))
    ada = {"Authorization": f"Token {api_token(auditor)}"}

    def get(query: str, headers: dict[str, str] = ada) -> Any:
        return Client().get(f"/api/v1/access-log{query}", headers=headers)

    refused = get("", {"Authorization": f"Token {api_token(vera)}"})
    [found] = get("?verb=token+created&by=bob").json()["items"]
    pages = [get("?by=ana&limit=2").json()]
    pages.append(Client().get(pages[0]["next"], headers=ada).json())

    assert (
        refused.status_code,
        "access.view_access_log" in refused.json()["detail"],
    ) == (403, True)
    assert (found["actor"], found["subject"], found["details"]) == (
        "bob",
        "deploy of bob",
        {"scopes": ["read"]},
    )
    assert [item["subject"] for page in pages for item in page["items"]] == [
        "line 2",
        "line 1",
        "line 0",
    ]
    assert (get("?address=192.0.2.77").json()["items"], pages[1]["next"]) == ([], None)
    assert (get("?verb=nothing").status_code, get("?user=bob").status_code) == (
        400,
        400,
    )


def test_json_lines_have_all_that_a_line_says() -> None:
    written(1)

    [line] = map(json.loads, json_lines(AccessEvent.objects.all()))

    assert (line["actor"], line["verb"], line["subject"]) == (
        "ana",
        "refused",
        "line 0",
    )
    assert set(line) == {
        "at",
        "actor",
        "verb",
        "subject",
        "address",
        "requestId",
        "details",
    }
