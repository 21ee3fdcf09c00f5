"""A role that requires a second factor is granted to a user without one: what sessions and tokens may do."""

from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import Group, User
from django.test import Client
from pytest_django import Settings

from clusters.models import HubGrant
from fleetui.access.models import TeamGrant
from fleetui.access.tokens import create_service_account
from placements.models import Placement
from tests.addresses import Address, page_routes, writing_addresses
from tests.api.test_permissions import operations
from tests.api.test_schema import filled_hub
from tests.api.test_scopes import send, unsafe_operations
from tests.caches import forget_polls
from tests.database import stored_rows
from tests.rows import NOW, api_token, person
from tests.web.test_teams import Caller, counts, load

pytestmark = pytest.mark.django_db
FACTORS = "/account/second-factor/"
OWN = ("/account/", "/login/", "/logout/", "/theme/", "/rows/", "/keys/", "/help/")
"""What a session without the factor still shows: nothing of the fleet."""
PROBLEM = "urn:fleetui:problem:second-factor-required"


@pytest.fixture(autouse=True)
def _required(settings: Settings) -> None:
    settings.SECOND_FACTOR_ROLES = frozenset({"operator", "administrator"})


def by_role(user: User) -> None:
    user.groups.add(Group.objects.get(name="operator"))


def by_hub(user: User) -> None:
    group = Group.objects.create(name="of-hub")
    HubGrant.objects.create(hub_id=1, group=group, role="operator")
    user.groups.add(group)


def by_team(user: User) -> None:
    group = Group.objects.create(name="of-team")
    TeamGrant.objects.create(group=group, role="operator", key="team", value="payments")
    user.groups.add(group)


def as_superuser(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_superuser=True)


WAYS = [by_role, by_hub, by_team, as_superuser]


def called(
    client: Client, path: str, *, token: str = "", **headers: str
) -> tuple[int, str]:
    """Return the status, and the place that the response leads to or the kind of its problem."""
    answer = client.get(
        path,
        headers={**headers, **({"Authorization": f"Token {token}"} if token else {})},
    )
    if answer.headers["Content-Type"] == "application/problem+json":
        return answer.status_code, answer.json()["type"]
    return answer.status_code, answer.headers.get(
        "Location", answer.headers.get("HX-Redirect", "")
    )


@pytest.mark.parametrize("granted", WAYS)
def test_an_open_session_adds_one_before_anything_else(
    granted: Callable[[User], None],
) -> None:
    user, client = person("vera", "viewer"), Client()
    client.force_login(user)
    places = ("/clusters/", "/api/v1/clusters")
    assert [called(client, place)[0] for place in places] == [200, 200]

    granted(user)

    assert [called(client, place) for place in places] == [
        (302, FACTORS),
        (403, PROBLEM),
    ]
    assert called(client, "/clusters/", **{"HX-Request": "true"}) == (200, FACTORS)
    assert "Add one to continue" in client.get(FACTORS).content.decode()
    factor = Authenticator.objects.create(user=user, type="totp", data={})
    assert [called(client, place)[0] for place in places] == [200, 200]
    factor.delete()  # as an administrator does for a lost one
    assert [called(client, place)[0] for place in places] == [302, 403]


@pytest.mark.parametrize("granted", WAYS)
def test_a_token_is_refused_with_the_reason(granted: Callable[[User], None]) -> None:
    user = person("vera", "viewer")
    token, path = api_token(user), "/api/v1/clusters"
    assert called(Client(), path, token=token)[0] == 200

    granted(user)

    assert called(Client(), path, token=token) == (403, PROBLEM)
    answer = Client().get(path, headers={"Authorization": f"Token {token}"})
    assert (
        answer.json()["detail"]
        == "Your role requires a second factor. Log in with a browser and add one."
    )
    Authenticator.objects.create(user=user, type="webauthn", data={})
    assert called(Client(), path, token=token)[0] == 200


def test_no_page_is_shown_and_nothing_changes_by_a_session() -> None:
    load("payments")
    caller = Caller(person("vera", "viewer"), "payments")
    by_role(caller.user)
    before, shown, routes = counts(), set(), page_routes()
    assert len(routes) > 200
    for route in routes:
        if not route.startswith((*OWN, "/api/")):
            path = Address(route, "", "GET").path(lambda _route, _part: 1)
            shown |= {(route, *called(caller.client, path))} - {(route, 302, FACTORS)}
    for address in writing_addresses():
        if address.is_rest or address.route.startswith(OWN):
            continue
        answer = caller.call(address)
        if (answer.status_code, answer.headers.get("Location")) != (302, FACTORS):
            shown.add((address.route, answer.status_code, "POST"))

    assert shown == set()
    assert counts() == before


def test_no_operation_is_done_for_a_session_or_a_token() -> None:
    hub, user = filled_hub(), person("vera", "viewer")
    token, client = api_token(user), Client()
    client.force_login(user)
    user.groups.set(Group.objects.all())
    before, answers = stored_rows(), {}
    for method, path in [*operations(), *unsafe_operations()]:
        answers[method, path, "token"] = send(hub, token, method, path)
        answers[method, path, "session"] = client.generic(method, path.format_map(hub))

    assert len(answers) == 310
    assert {
        one: a.status_code for one, a in answers.items() if a.status_code != 403
    } == {}
    assert {answer.json()["type"] for answer in answers.values()} == {PROBLEM}
    assert stored_rows() == before


def test_a_page_that_polls_leads_there(web: Placement) -> None:
    user, client = person("vera", "viewer"), Client()
    client.force_login(user)
    polled = f"/placements/{web.full_name}/"
    assert called(client, polled, **{"HX-Request": "true"}) == (200, "")
    by_role(user)
    forget_polls()

    assert called(client, polled, **{"HX-Request": "true"}) == (200, FACTORS)


def test_service_accounts_and_accounts_without_a_password_here_are_exempt() -> None:
    robot = create_service_account(
        "robot", purpose="", by=User(username="root"), now=NOW
    ).user
    provided, local = person("provided"), person("local")
    SocialAccount.objects.create(user=provided, provider="oidc", uid="1")
    for user in (robot, provided):
        user.set_unusable_password()
        user.save()
    for user in (robot, provided, local):
        by_role(user)

    found = [
        called(Client(), "/api/v1/clusters", token=api_token(user))[0]
        for user in (robot, provided, local)
    ]

    assert found == [200, 200, 403]
    robot.set_password("a long enough password")
    robot.save()
    assert called(Client(), "/api/v1/clusters", token=api_token(robot))[0] == 200
