"""Proxies: the address that they name, and the user that they have logged in."""

from ipaddress import ip_network

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from pytest_django import Settings

from fleetui.accounts.proxy import client_address
from tests.accounts.conftest import PASSWORD
from tests.rows import api_token, person

pytestmark = pytest.mark.django_db
PROXY, STRANGER = "10.0.0.7", "192.0.2.66"
USER = "X-Remote-User"


@pytest.fixture(autouse=True)
def _proxies(settings: Settings) -> None:
    """Trust one network, as the settings do with the variables of the environment."""
    settings.TRUSTED_PROXIES = (ip_network("10.0.0.0/24"), ip_network("fd00::/64"))
    settings.PROXY_USER_HEADER, settings.PROXY_GROUPS_HEADER = (
        "HTTP_X_REMOTE_USER",
        "HTTP_X_REMOTE_GROUPS",
    )
    settings.PROXY_ROLES = {"ops": "operator", "readers": "viewer"}
    middleware = ["fleetui.accounts.proxy.TrustedProxyMiddleware", *settings.MIDDLEWARE]
    place = middleware.index("fleetui.accounts.second_factor.SecondFactorMiddleware")
    middleware.insert(place, "fleetui.accounts.proxy.ProxyLoginMiddleware")
    settings.MIDDLEWARE = middleware


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        (STRANGER, "198.51.100.1", STRANGER),
        (PROXY, "", PROXY),
        (PROXY, "198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.9, 198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.9, 198.51.100.1, 10.0.0.8", "198.51.100.1"),
        (PROXY, "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        (PROXY, "198.51.100.1, nonsense", PROXY),
        ("::ffff:10.0.0.7", "198.51.100.1", "198.51.100.1"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
    ],
)
def test_the_client_is_the_last_address_that_no_trusted_proxy_has(
    peer: str, forwarded: str, expected: str
) -> None:
    assert client_address(peer, forwarded) == expected


@pytest.mark.nightly
def test_attempts_behind_a_proxy_are_counted_by_client() -> None:
    given = {"username": "ana", "password": "a guess"}

    def attempts(address: str, forwarded: str, count: int) -> list[int]:
        client = Client(REMOTE_ADDR=address)
        headers = {"X-Forwarded-For": forwarded}
        return [
            client.post("/login/", given, headers=headers).status_code
            for _ in range(count)
        ]

    assert attempts(PROXY, "198.51.100.1", 11) == [422] * 10 + [429]
    assert attempts(PROXY, "198.51.100.2", 1) == [422]
    assert attempts(PROXY, "198.51.100.3, 198.51.100.1", 1) == [429]
    assert [
        attempts(STRANGER, f"198.51.100.{each}", 1)[0] for each in range(4, 15)
    ] == [422] * 10 + [429]


def test_who_comes_from_a_proxy_has_a_second_factor_there(settings: Settings) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator"})

    answer = Client(REMOTE_ADDR=PROXY).get(
        "/clusters/", headers={USER: "ada", "X-Remote-Groups": "ops"}
    )
    token = api_token(User.objects.get())

    assert answer.status_code == 200
    assert (
        Client()
        .get("/api/v1/clusters", headers={"Authorization": f"Token {token}"})
        .status_code
        == 200
    )


def test_a_trusted_proxy_logs_its_user_in_with_the_roles_of_the_groups(
    reported: list[str],
) -> None:
    client = Client(REMOTE_ADDR=PROXY)

    first = client.get(
        "/clusters/", headers={USER: "ada", "X-Remote-Groups": "ops, others"}
    )
    roles = set(User.objects.get().groups.values_list("name", flat=True))
    again = client.get("/clusters/", headers={USER: "ada", "X-Remote-Groups": "ops"})
    other = client.get("/clusters/", headers={USER: "li"})

    assert (first.status_code, again.status_code, other.status_code) == (200, 200, 403)
    assert roles == {"operator"}
    assert reported == ["in ada", "out ada", "in li"]
    assert not User.objects.get(username="ada").has_usable_password()


def test_the_session_ends_with_the_header(reported: list[str]) -> None:
    client = Client(REMOTE_ADDR=PROXY)
    client.get("/clusters/", headers={USER: "ada", "X-Remote-Groups": "ops"})

    assert client.get("/clusters/").status_code == 302
    assert reported == ["in ada", "out ada"]


def test_a_token_behind_the_proxy_leaves_no_session() -> None:
    headers = {
        USER: "ada",
        "Authorization": f"Token {api_token(person('ana', 'viewer'))}",
    }

    response = Client(REMOTE_ADDR=PROXY).get("/api/v1/clusters", headers=headers)

    assert (response.status_code, Session.objects.count()) == (200, 0)


def test_a_session_with_a_password_needs_no_header() -> None:
    person("ana", "viewer")
    client = Client(REMOTE_ADDR=PROXY)
    client.post("/login/", {"username": "ana", "password": PASSWORD})

    assert client.get("/clusters/").status_code == 200


def test_the_header_is_refused_from_everyone_else(reported: list[str]) -> None:
    person("ana", "operator")
    client = Client(REMOTE_ADDR=STRANGER)
    headers = {USER: "ana", "X-Forwarded-For": PROXY}

    responses = [
        client.get(address, headers=headers)
        for address in ("/clusters/", "/api/v1/clusters", "/login/")
    ]

    assert [response.status_code for response in responses] == [403] * 3
    assert "_auth_user_id" not in client.session
    assert (
        reported
        == ["failed ana: the header of the proxy came from an untrusted address"] * 3
    )


def test_a_name_that_no_user_can_have_and_a_disabled_account_are_refused(
    reported: list[str],
) -> None:
    User.objects.create_user("gone", is_active=False)
    client = Client(REMOTE_ADDR=PROXY)

    statuses = [
        client.get("/clusters/", headers={USER: name}).status_code
        for name in ("a b", "", "gone")
    ]

    assert statuses == [403] * 3
    assert User.objects.count() == 1
    assert len(reported) == 3


def test_without_the_settings_the_header_means_nothing(settings: Settings) -> None:
    settings.MIDDLEWARE = [
        one for one in settings.MIDDLEWARE if "accounts.proxy" not in one
    ]
    person("ana", "operator")

    assert (
        Client(REMOTE_ADDR=PROXY).get("/clusters/", headers={USER: "ana"}).status_code
        == 302
    )
