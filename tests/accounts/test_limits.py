"""Attempts to log in are limited by account and by address, at every entry point together."""

import pytest
from django.core.cache import cache, caches
from django.db import connection
from django.test import Client, RequestFactory

from fleetui.access.models import AccessEvent
from fleetui.accounts.attempts import count_attempt
from tests.accounts.conftest import PASSWORD
from tests.rows import person

pytestmark = pytest.mark.django_db
TOKEN = "/api/v1/token"


def attempt(
    name: str,
    password: str = "a guess",
    *,
    address: str = "192.0.2.1",
    token: bool = False,
) -> int:
    """Try to log in with a new browser; return the status."""
    client = Client(REMOTE_ADDR=address)
    given = {"username": name, "password": password}
    if token:
        return client.post(TOKEN, given, content_type="application/json").status_code
    return client.post("/login/", given).status_code


@pytest.mark.servers
def test_an_account_is_closed_to_an_address_after_ten_failures_at_any_entry_point(
    reported: list[str],
) -> None:
    person("ana", "operator")

    statuses = [
        attempt("ana" if number % 2 else "ANA", token=number % 3 == 0)
        for number in range(10)
    ]
    after = [attempt("ana", PASSWORD), attempt("ana", PASSWORD, token=True)]
    elsewhere = attempt("ana", PASSWORD, address="192.0.2.2")

    assert set(statuses) == {401, 422}
    assert (after, elsewhere) == ([429, 429], 302)
    assert reported[10:] == ["failed ana: too many attempts"] * 2 + ["in ana"]


def test_attempts_at_the_same_moment_are_all_counted(
    rf: RequestFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = rf.post("/login/", REMOTE_ADDR="192.0.2.1")
    with monkeypatch.context() as patch:
        patch.setattr(
            cache, "get_many", lambda _keys: {}
        )  # none of them sees what the others add
        found = [count_attempt(request, "ana") for _ in range(12)]

    assert [one is None for one in found] == [False] * 10 + [True] * 2
    assert found[0] is not None
    found[0].succeed()
    assert [count_attempt(request, "ana") is None for _ in range(2)] == [False, True]


@pytest.mark.nightly
def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    statuses = [attempt("ana", address=f"2001:db8::{number}") for number in range(10)]

    assert set(statuses) == {422}
    assert (
        attempt("ana", address="2001:db8::ff"),
        attempt("ana", address="2001:db8:1::1"),
    ) == (429, 422)
    statuses = [
        attempt("bob", address=f"::ffff:192.0.2.{number}") for number in range(12)
    ]
    assert set(statuses) == {422}
    assert (
        attempt("ana", address="fe80::1%eth0"),
        attempt("ana", address="unix:"),
    ) == (422, 422)


@pytest.mark.nightly
def test_an_account_is_closed_to_everyone_after_thirty_failures() -> None:
    person("ana", "operator")

    statuses = [attempt("ana", address=f"192.0.2.{number}") for number in range(30)]

    assert set(statuses) == {422}
    assert attempt("ana", PASSWORD, address="192.0.2.99") == 429


@pytest.mark.nightly
def test_an_address_is_closed_after_sixty_failures_whatever_the_account() -> None:
    person("ana", "operator")

    statuses = [attempt(f"user-{number}") for number in range(60)]

    assert set(statuses) == {422}
    assert attempt("ana", PASSWORD) == 429


@pytest.mark.nightly
def test_logins_that_succeed_are_not_counted() -> None:
    person("ana", "operator")

    assert {attempt("ana", PASSWORD) for _ in range(12)} == {302}


def test_a_client_cannot_choose_the_address_that_is_counted() -> None:
    client = Client(REMOTE_ADDR="192.0.2.1")
    given = {"username": "ana", "password": "a guess"}

    statuses = [
        client.post(
            "/login/", given, headers={"X-Forwarded-For": f"10.0.0.{number}"}
        ).status_code
        for number in range(11)
    ]

    assert statuses == [422] * 10 + [429]


def test_guesses_of_the_password_inside_a_session_are_limited_too() -> None:
    client = Client()
    client.force_login(person("ana", "operator"))
    new = "another passphrase of hers"
    given = {"oldpassword": "a guess", "password1": new, "password2": new}

    changes = [client.post("/account/password/", given).status_code for _ in range(6)]
    confirmations = [
        client.post("/account/confirm/", {"password": "a guess"}).status_code
        for _ in range(11)
    ]

    assert (changes[-1], confirmations[-1]) == (429, 429)
    assert (
        client.post(
            "/account/password/", {**given, "oldpassword": PASSWORD}
        ).status_code
        == 429
    )


def test_the_response_says_when_to_try_again() -> None:
    client = Client()
    for _ in range(10):
        client.post("/login/", {"username": "ana", "password": "a guess"})

    response = client.post("/login/", {"username": "ana", "password": "a guess"})

    assert int(response.headers["Retry-After"]) > 0
    assert "Too many failed attempts" in response.content.decode()


def test_the_counters_are_in_the_database_and_name_no_user() -> None:
    """Several web processes share them."""
    attempt("ana")

    with connection.cursor() as cursor:
        cursor.execute("SELECT cache_key FROM fleetui_shared_cache")
        keys = [row[0] for row in cursor.fetchall()]
    assert len(keys) == 3
    assert not [key for key in keys if "ana" in key]
    assert type(caches["default"]).__name__ == "DatabaseCache"


def test_failures_are_in_the_access_log_with_their_reason() -> None:
    person("ana", "operator")
    for _ in range(11):
        attempt("ana", token=True)

    lines = AccessEvent.objects.filter(verb="login failed", actor_name="ana")

    assert lines.count() == 11
    assert [line.details for line in lines.order_by("pk")][-1] == {
        "reason": "too many attempts"
    }
