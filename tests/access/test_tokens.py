"""API tokens: scopes, expiry, revoking; service accounts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from fleetui.access.models import AccessEvent, ApiToken
from fleetui.access.tokens import (
    create_service_account,
    create_token,
    revoke_all_tokens,
    user_of_token,
)
from fleetui.apimachinery.errors import InvalidManifest
from tests.rows import NOW, api_token, joined, person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
TOKENS = "/api/v1/tokens"


def client_of(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def test_only_a_hash_is_stored() -> None:
    token = api_token(person("ann", "viewer"), now=NOW)

    stored = str(ApiToken.objects.values().get())

    assert token not in stored
    assert token[:14] in stored


@pytest.mark.parametrize(
    ("scopes", "reads", "operates"),
    [(["read"], 200, 403), (["operate"], 200, 200), (["approve"], 200, 403)],
)
def test_scopes_restrict_what_roles_allow(
    scopes: list[str], reads: int, operates: int
) -> None:
    joined("a")
    client = client_of(api_token(person("ann", "operator", "approver"), *scopes))

    assert client.get("/api/v1/clusters").status_code == reads
    assert client.post("/api/v1/clusters/a/cordon").status_code == operates


def test_scopes_restrict_a_superuser_and_give_a_viewer_nothing() -> None:
    joined("a")
    root = User.objects.create_superuser("root", password="x")
    reader = client_of(api_token(root, "read"))
    viewer = client_of(api_token(person("vera", "viewer"), "operate"))

    assert [
        client.post("/api/v1/clusters/a/cordon").status_code
        for client in (reader, viewer)
    ] == [403, 403]


def test_an_expired_or_revoked_token_is_refused() -> None:
    ann = person("ann", "viewer")
    old, other = (
        api_token(ann, now=datetime.now(UTC) - timedelta(days=31)),
        api_token(ann),
    )

    assert client_of(old).get("/api/v1/clusters").status_code == 401
    assert client_of(other).get("/api/v1/clusters").status_code == 200
    revoke_all_tokens(ann, by=ann, now=NOW)
    assert client_of(other).get("/api/v1/clusters").status_code == 401


def test_one_query_finds_a_token_and_its_use_is_written_once_a_minute(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    token = api_token(person("ann", "viewer"), now=NOW)

    with django_assert_num_queries(2):
        user_of_token(token, now=NOW)
    with django_assert_num_queries(1):
        user_of_token(token, now=NOW + timedelta(seconds=59))
    with django_assert_num_queries(2):
        user_of_token(token, now=NOW + timedelta(seconds=61))

    assert ApiToken.objects.get().last_used_at == NOW + timedelta(seconds=61)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": " ", "scopes": ["read"]}, "name"),
        ({"name": "x" * 64, "scopes": ["read"]}, "name"),
        ({"name": "a", "scopes": []}, "scopes"),
        ({"name": "a", "scopes": ["admin"]}, "scopes"),
        ({"name": "a", "scopes": ["read"], "days": 0}, "days"),
        ({"name": "a", "scopes": ["read"], "days": 366}, "days"),
        ({"name": "a", "scopes": ["read"], "user": "ann2"}, "user"),
        ({"name": "taken", "scopes": ["read"]}, "name"),
    ],
)
def test_bad_input_names_the_field(body: dict[str, Any], path: str) -> None:
    ann = person("ann", "viewer")
    create_token(
        ann, name="taken", scopes=["read"], days=1, by=ann, now=datetime.now(UTC)
    )
    client = APIClient()
    client.force_login(ann)

    answer = client.post(TOKENS, body, format="json")

    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["faults"]] == [path]
    assert ApiToken.objects.count() == 1


def test_tokens_over_rest_are_those_of_the_caller() -> None:
    ann, bob = person("ann", "operator"), person("bob", "viewer")
    client, theirs = (
        client_of(api_token(ann)),
        ApiToken.objects.get(digest__isnull=False),
    )
    other = client_of(api_token(bob))

    created = client.post(
        TOKENS, {"name": "deploy", "scopes": ["read"], "days": 1}, format="json"
    ).json()

    assert created["token"].startswith(created["prefix"])
    assert [item["name"] for item in client.get(TOKENS).json()["items"]] == [
        "deploy",
        "test 0",
    ]
    assert "token" not in client.get(TOKENS).json()["items"][0]
    assert other.delete(f"{TOKENS}/{theirs.pk}").status_code == 404
    assert other.delete(TOKENS).status_code == 204
    assert client.delete(f"{TOKENS}/{created['id']}").status_code == 204
    assert ApiToken.objects.get().user == ann


def test_a_token_gives_no_more_than_it_has() -> None:
    client = client_of(api_token(person("ann", "operator"), "read"))
    own = ApiToken.objects.get()

    bodies = [
        {"name": "a", "scopes": ["operate"], "days": 1},
        {"name": "b", "scopes": ["read"], "days": 90},
    ]
    answers = [client.post(TOKENS, body, format="json").status_code for body in bodies]

    assert answers == [403, 403]
    assert client.delete(TOKENS).status_code == 403
    assert client.delete(f"{TOKENS}/{own.pk}").status_code == 403


def test_a_token_that_approves_creates_and_revokes_only_such_tokens() -> None:
    client = client_of(api_token(person("ann", "operator"), "approve"))
    own = ApiToken.objects.get()

    bodies = [
        {"name": one, "scopes": [one], "days": 1} for one in ("operate", "approve")
    ]
    answers = [client.post(TOKENS, body, format="json").status_code for body in bodies]

    assert answers == [403, 201]
    assert client.delete(TOKENS).status_code == 403
    assert (
        client.delete(f"{TOKENS}/{ApiToken.objects.get(name='approve').pk}").status_code
        == 403
    )
    assert client.delete(f"{TOKENS}/{own.pk}").status_code == 204


@pytest.mark.nightly
def test_a_name_and_password_give_at_most_20_tokens() -> None:
    ann = person("ann", "viewer")
    body = {"username": "ann", "password": "a long enough password"}
    first = ""
    for number in range(21):
        answer = (
            APIClient(REMOTE_ADDR=f"10.0.0.{number}")
            .post("/api/v1/token", body, format="json")
            .json()
        )
        first = first or answer["token"]

    assert ApiToken.objects.filter(user=ann).count() == 20
    assert client_of(first).get("/api/v1/clusters").status_code == 401
    assert client_of(answer["token"]).get("/api/v1/clusters").status_code == 200


def test_the_page_shows_a_token_once_and_revokes_it() -> None:
    client = Client()
    client.force_login(person("ann", "viewer"))

    page = client.post(
        "/tokens/", {"name": "deploy", "scopes": ["read"], "days": "30"}
    ).content.decode()
    secret = page.partition("<code>")[2].partition("</code>")[0]
    token = ApiToken.objects.get()
    again = client.get("/tokens/").content.decode()

    assert client_of(secret).get("/api/v1/clusters").status_code == 200
    assert secret not in again
    assert token.prefix in again
    assert client.post("/tokens/", {"name": "", "days": "30"}).status_code == 422
    stranger = Client()
    stranger.force_login(person("bob", "viewer"))
    assert stranger.post(f"/tokens/{token.pk}/revoke/").status_code == 404
    client.post(f"/tokens/{token.pk}/revoke/")
    assert client_of(secret).get("/api/v1/clusters").status_code == 401


def test_a_service_account_works_over_rest_and_cannot_sign_in() -> None:
    root = User.objects.create_superuser("root", password="x")
    robot = create_service_account("robot", purpose="deploys", by=root, now=NOW).user
    robot.set_password("a long enough password")
    robot.save()
    robot.groups.set(person("ann", "operator").groups.all())
    pages, superuser = Client(), Client()
    superuser.force_login(root)

    answer = pages.post(
        "/login/", {"username": "robot", "password": "a long enough password"}
    )
    superuser.post(
        "/tokens/",
        {"name": "deploy", "scopes": ["operate"], "days": "30", "user": "robot"},
    )

    assert answer.status_code == 403
    assert pages.get("/clusters/").status_code == 302
    assert AccessEvent.objects.filter(verb="login failed", actor_name="robot").exists()
    token = ApiToken.objects.get()
    assert (token.user, token.created_by) == (robot, "root")


def test_no_user_creates_tokens_for_people(rf: Any) -> None:  # noqa: ARG001 -- no request is needed
    root = User.objects.create_superuser("root", password="x")
    ann = person("ann", "viewer")

    with pytest.raises(PermissionError):
        create_token(ann, name="a", scopes=["read"], days=1, by=root, now=NOW)
    with pytest.raises(InvalidManifest):
        create_service_account("ann", purpose="", by=root, now=NOW)


def test_a_change_of_the_password_ends_tokens_on_request() -> None:
    root = User.objects.create_superuser("root", password="x")
    ann = person("ann", "viewer")
    token, client = client_of(api_token(ann)), Client()
    client.force_login(root)
    passwords = dict.fromkeys(("password1", "password2"), "quite another one 17")
    address = f"/admin/auth/user/{ann.pk}/password/"

    client.post(address, passwords)
    kept = token.get("/api/v1/clusters").status_code
    client.post(address, {**passwords, "revoke_tokens": "on"})

    assert (kept, token.get("/api/v1/clusters").status_code) == (200, 401)
    assert (
        AccessEvent.objects.filter(verb="password changed", actor_name="root").count()
        == 2
    )
