"""Second factors: an app, a security key, recovery codes; and roles that require one."""

import base64
import hmac
import json
import re
import time
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from clusters.models import HubGrant
from fleetui.accounts.second_factor import requires_second_factor, unreadable_keys
from fleetui.env import new_encryption_key
from tests.accounts.conftest import PASSWORD
from tests.accounts.security_key import SecurityKey
from tests.live_hubs import live_hub
from tests.rows import person
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db
FACTORS = "/account/second-factor/"
TOKEN = "/api/v1/token"


def browser_of(name: str) -> Client:
    """Return a browser on localhost, where there are security keys, with the password entered."""
    client = Client(HTTP_HOST="localhost")
    client.post("/login/", {"username": name, "password": PASSWORD})
    return client


def confirmed(name: str) -> Client:
    """Return a browser that may change second factors."""
    client = browser_of(name)
    client.post(f"/account/confirm/?next={FACTORS}", {"password": PASSWORD})
    return client


def code_for(secret: str) -> str:
    """Return what an app shows now; no code counts as used."""
    cache.clear()
    return shown_code(secret)


def shown_code(secret: str) -> str:
    """Return the code of this time as RFC 6238 has it."""
    counter = int(time.time() // 30).to_bytes(8)
    digest = hmac.digest(base64.b32decode(secret), counter, "sha1")
    start = digest[-1] & 0xF
    number = int.from_bytes(digest[start : start + 4]) & 0x7FFF_FFFF
    return f"{number % 1_000_000:06}"


def add_app(client: Client) -> tuple[str, list[str]]:
    """Add an app; return its secret and the recovery codes."""
    page = client.get(f"{FACTORS}app/").content.decode()
    secret = re.findall(r"Key: <code>(\w+)</code>", page)[0]
    response = client.post(f"{FACTORS}app/", {"code": code_for(secret)}, follow=True)
    return secret, re.findall(r"<li><code>(\d+)</code>", response.content.decode())


def options_in(client: Client, address: str) -> dict[str, Any]:
    """Return the options for a security key that a page has."""
    page = client.get(address).content.decode()
    found: dict[str, Any] = json.loads(
        re.findall(r'<script id="key-options"[^>]*>(.*?)</script>', page)[0]
    )
    return found


@pytest.mark.nightly
def test_an_app_is_added_needed_at_login_and_removed(reported: list[str]) -> None:
    person("ana", "operator")
    client = confirmed("ana")
    secret, codes = add_app(client)
    other = browser_of("ana")

    before = other.get("/clusters/").status_code
    wrong = other.post("/login/second-factor/", {"code": "000000"})
    right = other.post("/login/second-factor/", {"code": code_for(secret)})

    assert len(codes) == 10
    assert (before, wrong.status_code, right.status_code) == (302, 422, 302)
    assert other.get("/clusters/").status_code == 200
    assert reported == ["in ana", "failed ana: wrong second factor", "in ana"]
    client.post("/account/confirm/code/", {"code": code_for(secret)})
    assert client.post(f"{FACTORS}app/remove/").status_code == 302
    assert not Authenticator.objects.exists()
    assert browser_of("ana").get("/clusters/").status_code == 200


@pytest.mark.nightly
def test_a_code_and_a_recovery_code_are_accepted_once() -> None:
    person("ana", "operator")
    secret, codes = add_app(confirmed("ana"))
    code = code_for(secret)

    statuses = [
        browser_of("ana").post("/login/second-factor/", {"code": given}).status_code
        for given in (code, code, codes[0], codes[0])
    ]

    assert statuses == [302, 422, 302, 422]


def test_guesses_of_a_code_are_limited_at_the_page_and_for_tokens_together(
    reported: list[str],
) -> None:
    person("ana", "operator")
    secret, _ = add_app(confirmed("ana"))
    client = browser_of("ana")
    given = {"username": "ana", "password": PASSWORD}

    for _number in range(3):
        client.post("/login/second-factor/", {"code": "000000"})
    token = [
        client.post(
            TOKEN, {**given, "code": "111111"}, content_type="application/json"
        ).status_code
        for _number in range(3)
    ]
    last = client.post("/login/second-factor/", {"code": shown_code(secret)})

    assert token == [401, 401, 429]
    assert (last.status_code, "Too many failed attempts" in last.content.decode()) == (
        429,
        True,
    )
    assert reported[-1] == "failed ana: too many attempts at the second factor"


def test_a_token_needs_the_code(reported: list[str]) -> None:
    person("ana", "operator")
    secret, _ = add_app(confirmed("ana"))
    given = {"username": "ana", "password": PASSWORD}
    client = Client()

    without = client.post(TOKEN, given, content_type="application/json")
    with_code = client.post(
        TOKEN, {**given, "code": code_for(secret)}, content_type="application/json"
    )

    assert (without.status_code, with_code.status_code) == (401, 200)
    assert "second factor" in without.json()["detail"]
    assert reported[-2:] == ["failed ana: second factor missing", "in ana"]


def test_a_security_key_is_added_needed_at_login_and_removed() -> None:
    person("ana", "operator")
    key, client = SecurityKey(), confirmed("ana")
    added = client.post(
        f"{FACTORS}keys/new/",
        {
            "name": "Blue key",
            "credential": key.create(options_in(client, f"{FACTORS}keys/new/")),
        },
    )
    other = browser_of("ana")
    address = "/login/second-factor/"

    foreign = other.post(
        address, {"credential": SecurityKey().get(options_in(other, address))}
    )
    right = other.post(address, {"credential": key.get(options_in(other, address))})

    assert (added.status_code, foreign.status_code, right.status_code) == (
        302,
        422,
        302,
    )
    assert other.get("/clusters/").status_code == 200
    row = Authenticator.objects.get(type="webauthn")
    assert client.get(f"{FACTORS}").content.decode().count("Blue key") == 1
    assert client.post(f"{FACTORS}keys/{row.pk}/remove/").status_code == 302
    assert not Authenticator.objects.exists()


def test_the_key_of_another_user_is_not_removed() -> None:
    row = Authenticator.objects.create(user=person("li"), type="webauthn", data={})
    person("ana", "operator")

    assert confirmed("ana").post(f"{FACTORS}keys/{row.pk}/remove/").status_code == 404
    assert Authenticator.objects.exists()


def test_second_factors_change_only_after_the_password_again() -> None:
    person("ana", "operator")
    client = browser_of("ana")

    for address in ("app/", "keys/new/"):
        assert client.get(f"{FACTORS}{address}")["Location"].startswith(
            "/account/confirm/"
        ), address


@pytest.mark.django_db(transaction=True)
def test_a_role_can_require_a_second_factor(settings: Settings) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator"})
    person("ana", "operator")
    person("vera", "viewer")
    client, given = browser_of("ana"), {"username": "ana", "password": PASSWORD}

    before = [
        client.get(address) for address in ("/clusters/", "/admin/", "/api/v1/clusters")
    ]
    token = Client().post(TOKEN, given, content_type="application/json")
    client.post(f"/account/confirm/?next={FACTORS}", {"password": PASSWORD})
    page = client.get(FACTORS).content.decode()
    add_app(client)

    assert [answer.status_code for answer in before] == [302, 302, 403]
    assert before[0]["Location"] == FACTORS
    assert (token.status_code, "requires a second factor" in page) == (401, True)
    assert client.get("/clusters/").status_code == 200
    assert browser_of("vera").get("/clusters/").status_code == 200
    client.post("/account/confirm/", {"password": PASSWORD})
    assert (
        "add another one first" in client.post(f"{FACTORS}app/remove/").content.decode()
    )
    assert Authenticator.objects.filter(type="totp").exists()


def test_a_role_on_one_hub_can_require_a_second_factor(settings: Settings) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator"})
    ana, group = person("ana"), Group.objects.create(name="paris-team")
    ana.groups.add(group)
    before = requires_second_factor(ana)

    HubGrant.objects.create(hub=live_hub("paris"), group=group, role="operator")

    assert (before, requires_second_factor(ana)) == (False, True)


def test_keys_are_encrypted_and_follow_a_rotation(settings: Settings) -> None:
    user: User = person("ana", "operator")
    secret, _ = add_app(confirmed("ana"))
    stored = Authenticator.objects.get(user=user, type="totp").data["secret"]

    settings.CREDENTIAL_KEYS = (new_encryption_key(), *settings.CREDENTIAL_KEYS)
    rotated = unreadable_keys(reencrypt=True)
    settings.CREDENTIAL_KEYS = settings.CREDENTIAL_KEYS[:1]

    assert secret not in stored
    assert rotated == []
    assert (
        browser_of("ana")
        .post("/login/second-factor/", {"code": code_for(secret)})
        .status_code
        == 302
    )
    settings.CREDENTIAL_KEYS = (new_encryption_key(),)
    assert unreadable_keys(reencrypt=False) == ["ana"]


def test_the_pages_are_well_formed() -> None:
    person("ana", "operator")
    client = confirmed("ana")
    pages = [
        "/account/",
        "/account/password/",
        FACTORS,
        f"{FACTORS}app/",
        f"{FACTORS}keys/new/",
    ]
    found = {address: client.get(address) for address in pages}
    add_app(client)
    for address in ("app/remove/", "codes/", "codes/new/"):
        found[address] = client.get(f"{FACTORS}{address}")
    found["again"] = client.get("/account/confirm/")
    found["code again"] = client.get("/account/confirm/code/")
    found["factor"] = browser_of("ana").get("/login/second-factor/")

    for address, response in found.items():
        outline = Outline(response.content.decode())
        assert (response.status_code, outline.problems, outline.is_ordered) == (
            200,
            [],
            True,
        ), address
