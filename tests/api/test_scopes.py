"""What a token may do by its scopes: every operation of the schema, with tokens of a user who may do all."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusters.models import NotificationChannel
from fleetui.access.models import AccessEvent
from tests.api.test_permissions import APPROVING, HUB_WRITES, operations
from tests.api.test_schema import filled_hub, on_what_is_there
from tests.database import compare_for_long, rolled_back, stored_rows
from tests.rows import api_token

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kept_connection")]
COMPUTING = {
    ("POST", "/api/v1/decisions/{decision}/exact"),
    ("POST", "/api/v1/placements/preview"),
    ("POST", "/api/v1/placements/preview/semantics"),
    ("POST", "/api/v1/placements/{name}/plan"),
    ("POST", "/api/v1/simulate"),
    ("POST", "/api/v1/staged-strategies/{name}/preview"),
    ("POST", "/api/v1/what-if"),
}
"""All that a token without a writing scope may send with an unsafe method: it computes and stores nothing."""
COMPARED = {"placements.ProblemBook", "placements.Problem"}
"""With the statuses of placements what is computed from all else where that is due; no request decides it."""
NEW_TOKEN = ("POST", "/api/v1/tokens")


def unsafe_operations() -> list[tuple[str, str]]:
    found = [
        (method, path)
        for method, path in operations()
        if method not in ("GET", "HEAD", "OPTIONS")
    ]
    return [*found, ("POST", HUB_WRITES), ("POST", "/api/v1/token")]


def send(hub: dict[str, str], token: str, method: str, path: str) -> Any:
    """Call an operation with the names and the body that `test_schema.py` calls it with."""
    parts = [SimpleNamespace(name=name) for name in re.findall(r"{(\w+)}", path)]
    operation: Any = SimpleNamespace(
        path=path,
        label=f"{method} {path}",
        path_parameters=parts,
        Case=lambda **case: case,
    )
    case = on_what_is_there(operation, hub)
    return Client().generic(
        *(
            method,
            path.format_map(case["path_parameters"]),
            json.dumps(case.get("body", {})),
        ),
        content_type="application/json",
        query_params=case["query"],
        headers={"Authorization": f"Token {token}"},
    )


@pytest.fixture
def hub() -> dict[str, str]:
    return filled_hub()


def passing(
    hub: dict[str, str], *scopes: str
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the unsafe operations that are not refused for a token of a superuser, and those that write."""
    token = api_token(
        User.objects.create_superuser("-".join(scopes), password="x"), *scopes
    )
    compare_for_long()
    before, passed, written = stored_rows(), set(), set()
    for operation in unsafe_operations():
        with rolled_back():
            answer = send(hub, token, *operation)
            if answer.status_code != 403:
                passed.add(operation)
            if stored_rows() != before:
                written.add(operation)
    return passed, written


def test_a_token_that_only_reads_changes_nothing(hub: dict[str, str]) -> None:
    passed, written = passing(hub, "read")

    assert passed == COMPUTING
    assert written == set()


def test_reading_changes_nothing_and_is_kept_by_no_cache(hub: dict[str, str]) -> None:
    token = api_token(User.objects.create_superuser("root", password="x"))
    before, answers = stored_rows(), {}
    for method, path in operations():
        if method == "GET":
            answers[path] = send(hub, token, method, path)

    assert (
        len([answer for answer in answers.values() if answer.status_code == 200]) == 80
    )
    assert {
        answer.headers["X-Content-Type-Options"] for answer in answers.values()
    } == {"nosniff"}
    assert {
        path
        for path, one in answers.items()
        if "no-store" not in one.headers["Cache-Control"]
    } == set()
    assert [
        path
        for path, one in answers.items()
        if "Access-Control-Allow-Origin" in one.headers
    ] == []
    assert {
        one for one, rows in stored_rows().items() if rows != before[one]
    } <= COMPARED


def test_a_token_that_approves_does_nothing_else(hub: dict[str, str]) -> None:
    passed, written = passing(hub, "read", "approve")

    assert passed == {*COMPUTING, *APPROVING, NEW_TOKEN}
    assert written == {*APPROVING, NEW_TOKEN}


def test_a_token_that_operates_is_refused_nothing_but_approvals(
    hub: dict[str, str],
) -> None:
    passed, written = passing(hub, "read", "operate")

    assert {*unsafe_operations()} - passed == {*APPROVING}
    assert len(written) > 40


def test_a_channel_stays_and_the_refusal_names_scope_and_user(
    hub: dict[str, str],
) -> None:
    token = api_token(User.objects.create_superuser("root", password="x"), "read")

    answer = send(hub, token, "DELETE", "/api/v1/notifications/channels/{name}")

    assert answer.status_code == 403
    detail = "This operation requires a token with the scope operate. Scopes of this token: read."
    assert answer.json()["detail"] == detail
    assert NotificationChannel.objects.filter(name="chat").exists()
    assert AccessEvent.objects.filter(verb="refused").latest("pk").actor_name == "root"
