"""Logging in with an identity provider, which runs as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from fleetui.models import Event
from tests.accounts.conftest import PASSWORD
from tests.rows import person
from tests.runtime.processes import ROOT

pytestmark = pytest.mark.django_db
SECRET = "a secret of the client"
ROLES = {
    "fleet-ops": "operator",
    "fleet-readers": "viewer",
    "fleet-admins": "administrator",
}
ADA = {
    "sub": "0001",
    "preferred_username": "ada",
    "email": "ana@example.com",
    "email_verified": True,
}
http = urllib3.PoolManager(retries=False)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """Run the provider; return its address."""
    command = [sys.executable, "-m", "tests.accounts.provider", SECRET]
    environment = os.environ | {"AUTHLIB_INSECURE_TRANSPORT": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    process.terminate()
    process.wait(timeout=10)
    process.stdout.close()


Enter = Callable[..., Any]


@pytest.fixture
def log_in(issuer: str, settings: Settings) -> Enter:
    """Return a function that logs in with claims, in a new browser or in one, and returns the response."""
    client = {
        "provider_id": "oidc",
        "name": "Example ID",
        "client_id": "fleetui",
        "secret": SECRET,
        "settings": {
            "server_url": issuer,
            "oauth_pkce_enabled": True,
            "scope": ["openid", "profile"],
        },
    }
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [client]}}
    settings.OIDC_NAME, settings.OIDC_ROLES = "Example ID", ROLES

    def enter(
        claims: dict[str, Any],
        browser: Client | None = None,
        process: str = "",
        **more: Any,
    ) -> Any:
        state = {"claims": claims, "info": {}, "foreign_key": False, **more}
        http.request("POST", f"{issuer}/claims", body=json.dumps(state))
        browser = browser or Client()
        sent = browser.post(f"/oidc/oidc/login/?process={process}&next=/clusters/")
        assert sent.status_code == 302
        assert sent["Location"].startswith(f"{issuer}/authorize?")
        assert "code_challenge_method=S256" in sent["Location"]
        back = http.request("GET", sent["Location"], redirect=False)
        return browser.get(back.headers["Location"].removeprefix("http://testserver"))

    return enter


def roles_of(name: str) -> set[str]:
    user = User.objects.get(username=name)
    return {*user.groups.values_list("name", flat=True)} | (
        {"administrator"} if user.is_superuser else set()
    )


@pytest.mark.nightly
def test_the_first_login_creates_an_account_with_the_roles_of_the_claims(
    log_in: Enter, reported: list[str]
) -> None:
    response = log_in({**ADA, "groups": ["fleet-ops", "others"]})

    assert (response.status_code, response["Location"]) == (302, "/clusters/")
    assert response.client.get("/clusters/").status_code == 200
    assert roles_of("ada") == {"operator"}
    assert not User.objects.get(username="ada").has_usable_password()
    assert reported == ["in ada"]


def test_who_comes_from_the_provider_has_a_second_factor_there(
    log_in: Enter, settings: Settings
) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator"})

    browser = log_in({**ADA, "groups": ["fleet-ops"]}).client

    assert (
        browser.get("/clusters/").status_code,
        browser.get("/api/v1/clusters").status_code,
    ) == (200, 200)


@pytest.mark.nightly
def test_roles_follow_the_claims_at_every_login(log_in: Enter) -> None:
    log_in({**ADA, "groups": ["fleet-ops", "fleet-admins"]})
    first = roles_of("ada")
    log_in({**ADA, "groups": ["fleet-readers"]})
    second = roles_of("ada")
    response = log_in(ADA)

    assert (first, second, roles_of("ada")) == (
        {"operator", "administrator"},
        {"viewer"},
        set(),
    )
    assert response.client.get("/clusters/").status_code == 403
    assert User.objects.count() == 1
    events = Event.objects.filter(kind="User", name="ada").order_by("pk")
    assert [event.after for event in events] == [
        {"roles": ["administrator", "operator"]},
        {"roles": ["viewer"]},
        {"roles": []},
    ]


def test_an_email_address_and_a_name_take_no_account_over(
    log_in: Enter, reported: list[str]
) -> None:
    ana = person("ana", "operator")
    ana.email = "ana@example.com"
    ana.save()

    log_in(ADA)
    refused = log_in({**ADA, "sub": "0002", "preferred_username": "Ana"})

    assert {user.username for user in User.objects.all()} == {"ana", "ada"}
    assert [one.user.username for one in SocialAccount.objects.all()] == ["ada"]
    assert refused.status_code == 403
    assert "There is an account Ana already" in refused.content.decode()
    assert refused.client.get("/").status_code == 302
    assert reported[-1].startswith("failed Ana: There is an account")


def test_an_account_is_connected_by_its_owner(log_in: Enter) -> None:
    browser = Client()
    browser.force_login(person("ana", "viewer"))

    confirmation = log_in(ADA, browser=browser, process="connect")
    unconnected = SocialAccount.objects.count()
    connected = browser.post(confirmation["Location"], {"password": PASSWORD})
    response = log_in({**ADA, "groups": ["fleet-ops"]})

    addresses = confirmation["Location"], connected["Location"]
    assert (unconnected, addresses) == (0, ("/account/confirm/", "/clusters/"))
    assert "This account is connected" in browser.get("/account/").content.decode()
    assert response.client.get("/clusters/").status_code == 200
    assert roles_of("ana") == {"operator"}


def test_an_account_that_was_disabled_stays_so(log_in: Enter) -> None:
    log_in(ADA)
    User.objects.update(is_active=False)

    response = log_in(ADA)

    assert response["Location"] == "/login/inactive/"
    assert "_auth_user_id" not in response.client.session


@pytest.mark.parametrize(
    ("claims", "more"),
    [
        (ADA, {"foreign_key": True}),
        (ADA, {"info": {"sub": "0009"}}),
        ({**ADA, "exp": 1_000_000_000}, {}),
        ({**ADA, "aud": "another-client"}, {}),
        ({**ADA, "iss": "https://evil.example"}, {}),
        ({**ADA, "preferred_username": "a b"}, {}),
        ({**ADA, "preferred_username": ""}, {}),
    ],
    ids=[
        "signed by another key",
        "two subjects",
        "expired",
        "for another client",
        "of another issuer",
        "odd name",
        "no name",
    ],
)
def test_a_login_that_proves_nothing_is_refused(
    log_in: Enter, reported: list[str], claims: dict[str, Any], more: dict[str, Any]
) -> None:
    response = log_in(claims, **more)

    assert response.status_code == 403
    assert "Login refused" in response.content.decode()
    assert User.objects.count() == 0
    assert [one.partition(" ")[0] for one in reported] == ["failed"]


def test_a_provider_that_names_another_issuer_is_refused(
    log_in: Enter, issuer: str, reported: list[str]
) -> None:
    claims = f"{issuer}/claims"
    http.request("POST", claims, body=json.dumps({"issuer": "https://evil.example"}))
    response = Client().post("/oidc/oidc/login/")
    http.request("POST", claims, body=json.dumps({"issuer": issuer}))

    assert response.status_code == 403
    assert "The login at the identity provider failed" in response.content.decode()
    assert len(reported) == 1
    assert log_in(ADA)["Location"] == "/clusters/"


def test_a_login_that_is_canceled_says_so(log_in: Enter) -> None:
    response = log_in({})

    assert response["Location"] == "/oidc/canceled/"
    assert response.client.get("/oidc/canceled/").status_code == 200


def test_an_answer_to_no_request_is_refused(log_in: Enter) -> None:  # noqa: ARG001  # its settings
    response = Client().get("/oidc/oidc/callback/?code=1&state=stolen")

    assert response.status_code == 403


def test_the_provider_is_offered_where_it_is_set(log_in: Enter) -> None:  # noqa: ARG001  # its settings
    page = Client().get("/login/?next=/clusters/").content.decode()

    assert "Log in with Example ID" in page


@pytest.mark.nightly
def test_without_a_provider_there_is_none() -> None:
    assert "Log in with" not in Client().get("/login/").content.decode()
    assert Client().post("/oidc/oidc/login/").status_code == 404
