"""Sessions end after inactivity and after their longest time; a page that polls keeps none alive."""

import logging
import re
from http.cookies import SimpleCookie
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from fleetui.access.models import ApiToken
from fleetui.accounts.sessions import sessions_of
from fleetui.middleware import ACTIVE, STARTED
from tests.accounts.conftest import PASSWORD
from tests.addresses import page_routes
from tests.caches import forget_polls
from tests.commands import call_command
from tests.rows import api_token, person

pytestmark = pytest.mark.django_db
POLL = {"HX-Request": "true", "FleetUI-Poll": "1"}
HOUR = 3600
PHONE = "Mozilla/5.0 (Android 16; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0"


@pytest.fixture
def browser() -> Client:
    """Return the browser of a user who has just logged in."""
    person("ana", "operator")
    client = Client()
    client.post("/login/", {"username": "ana", "password": PASSWORD})
    return client


def let_pass(client: Client, seconds: int, *keys: str) -> None:
    """Move the moments of a session into the past."""
    session = client.session
    for key in keys:
        session[key] -= seconds
    session.save()


def test_a_login_leads_to_this_host_only() -> None:
    person("ana", "operator")
    given = {"username": "ana", "password": PASSWORD}
    addresses = (
        "https://evil.example/",
        "//evil.example",
        "http://x.localhost/",
        "javascript:alert(1)",
    )

    found = {
        Client().post("/login/", {**given, "next": address})["Location"]
        for address in addresses
    }

    assert found == {"/"}
    assert (
        Client().post("/login/", {**given, "next": "/clusters/?q=a"})["Location"]
        == "/clusters/?q=a"
    )


def test_a_login_begins_a_new_session_which_a_logout_ends_on_the_server(
    browser: Client,
) -> None:
    first = browser.session.session_key
    copy = Client()
    copy.cookies = SimpleCookie(browser.cookies.output(header="", sep=";"))
    before = copy.get("/clusters/").status_code

    browser.post("/logout/")
    after = copy.get("/clusters/")
    browser.post("/login/", {"username": "ana", "password": PASSWORD})

    assert (before, after.status_code, after["Location"]) == (
        200,
        302,
        "/login/?next=/clusters/",
    )
    assert first != browser.session.session_key
    anonymous = Client()
    anonymous.cookies["sessionid"] = "chosen-by-someone-else-0123456789"
    anonymous.post("/login/", {"username": "ana", "password": PASSWORD})
    assert anonymous.cookies["sessionid"].value != "chosen-by-someone-else-0123456789"


def test_a_session_ends_with_its_account_and_a_role_with_the_next_request(
    browser: Client,
) -> None:
    user = User.objects.get(username="ana")
    statuses = [browser.get("/clusters/").status_code]
    user.groups.clear()
    statuses.append(browser.get("/clusters/").status_code)
    user.is_active = False
    user.save()

    assert [*statuses, browser.get("/clusters/").status_code] == [200, 403, 302]


def test_a_response_to_a_failed_login_is_the_same_for_every_name() -> None:
    person("ana", "operator")
    person("gone", "operator")
    User.objects.filter(username="gone").update(is_active=False)
    found = set()
    for name in ("ana", "gone", "missing"):
        page = Client().post("/login/", {"username": name, "password": "a guess"})
        text = re.sub(
            r'name="csrfmiddlewaretoken" value="\w+"', "", page.content.decode()
        )
        found.add((page.status_code, text.replace(name, "NAME")))

    assert len(found) == 1


def test_no_page_resets_a_password_or_reveals_one() -> None:
    assert [
        route for route in page_routes() if "reset" in route or "forgot" in route
    ] == []


def test_fields_of_passwords_are_masked_and_known_to_managers(browser: Client) -> None:
    browser.force_login(User.objects.create_superuser("root", password=PASSWORD))
    pages = ("/account/password/", "/account/confirm/", "/users/")
    fields = [
        field
        for client, address in [
            (Client(), "/login/"),
            *((browser, page) for page in pages),
        ]
        for field in re.findall(
            r'<input[^>]*name="\w*password\w*"[^>]*>',
            client.get(address).content.decode(),
        )
    ]

    assert len(fields) >= 5
    assert [
        field
        for field in fields
        if 'type="password"' not in field or "-password" not in field
    ] == []
    assert {int(one) for one in re.findall(r'maxlength="(\d+)"', "".join(fields))} <= {
        4096
    }


def test_a_token_in_an_address_is_none() -> None:
    token = api_token(person("ana", "operator"))

    for key in ("token", "access_token", "api_key", "authorization"):
        assert Client().get(f"/api/v1/clusters?{key}={token}").status_code == 401


def test_it_ends_an_hour_after_the_last_request(
    browser: Client, reported: list[str]
) -> None:
    let_pass(browser, HOUR - 10, ACTIVE)
    before = browser.get("/clusters/").status_code
    let_pass(browser, HOUR, ACTIVE)

    after = browser.get("/clusters/")
    login = browser.get(after["Location"]).content.decode()

    assert (before, after.status_code, after["Location"]) == (
        200,
        302,
        "/login/?next=/clusters/",
    )
    assert "ended after inactivity" in login
    assert reported == ["out ana"]


def test_it_ends_twelve_hours_after_the_login_whatever_is_done(browser: Client) -> None:
    let_pass(browser, 12 * HOUR, STARTED)

    assert browser.get("/clusters/").status_code == 302
    assert browser.get("/clusters/").status_code == 302


def test_requests_of_a_timer_are_no_activity(browser: Client) -> None:
    let_pass(browser, HOUR - 100, ACTIVE)
    moment = browser.session[ACTIVE]

    polled = browser.get("/", headers=POLL)
    kept = browser.session[ACTIVE]
    browser.get("/")

    assert polled.status_code == 200
    assert kept == moment
    assert browser.session[ACTIVE] > moment + HOUR - 200


def test_a_page_that_polls_goes_to_the_login_when_the_session_has_ended(
    browser: Client,
) -> None:
    let_pass(browser, HOUR, ACTIVE)
    forget_polls()

    response = browser.get("/", headers=POLL)

    assert response.headers["HX-Redirect"].startswith("/login/")


def test_rest_without_a_session_is_refused_when_it_has_ended(browser: Client) -> None:
    assert browser.get("/api/v1/clusters").status_code == 200
    let_pass(browser, HOUR, ACTIVE)

    assert browser.get("/api/v1/clusters").status_code == 401


def test_the_limits_cost_no_query_on_a_page(browser: Client) -> None:
    browser.get("/clusters/")

    with CaptureQueriesContext(connection) as found:
        browser.get("/clusters/")

    assert (
        len(
            [
                query
                for query in found.captured_queries
                if "django_session" in query["sql"]
            ]
        )
        == 1
    )


def test_other_sessions_end_with_a_new_password(browser: Client) -> None:
    other = Client()
    other.post("/login/", {"username": "ana", "password": PASSWORD})
    new = "another passphrase of hers"

    changed = browser.post(
        reverse("account_change_password"),
        {"oldpassword": PASSWORD, "password1": new, "password2": new},
    )

    assert (changed.status_code, changed["Location"]) == (302, "/account/")
    assert (browser.get("/").status_code, other.get("/").status_code) == (200, 302)


def test_api_tokens_end_with_a_new_password_on_request(browser: Client) -> None:
    api_token(User.objects.get(username="ana"))
    first, second = "another passphrase of hers", "and one more passphrase"
    form = {"oldpassword": PASSWORD, "password1": first, "password2": first}
    browser.post(reverse("account_change_password"), form)
    kept = ApiToken.objects.count()

    form = {
        "oldpassword": first,
        "password1": second,
        "password2": second,
        "revoke_tokens": "1",
    }
    browser.post(reverse("account_change_password"), form)

    assert (kept, ApiToken.objects.count()) == (1, 0)


def test_a_user_ends_sessions_in_other_browsers_and_no_one_elses(
    browser: Client,
) -> None:
    stranger, phone, tablet = Client(), Client(headers={"User-Agent": PHONE}), Client()
    stranger.force_login(person("li", "viewer"))
    for other, address in ((phone, "192.0.2.7"), (tablet, "192.0.2.8")):
        other.post(
            "/login/", {"username": "ana", "password": PASSWORD}, REMOTE_ADDR=address
        )
    let_pass(tablet, 1800, STARTED, ACTIVE)
    let_pass(phone, 100, ACTIVE)
    phone.get("/", REMOTE_ADDR="192.0.2.9")
    ana, li = User.objects.get(username="ana"), User.objects.get(username="li")
    shown = sessions_of(ana, current=browser.session.session_key)
    page = browser.get("/account/").content.decode()

    assert [
        (session.browser, session.address, session.is_current) for session in shown
    ] == [
        ("Unknown browser", "127.0.0.1", True),
        ("Firefox on Android", "192.0.2.9", False),
        ("Unknown browser", "192.0.2.8", False),
    ]
    assert (page.count("This session"), page.count("Firefox on Android")) == (1, 2)
    assert not [session.key for session in shown if session.key in page]
    assert browser.get(f"/account/sessions/{shown[1].id}/end/").status_code == 405
    browser.post("/account/confirm/", {"password": PASSWORD})
    for refused in (sessions_of(li)[0].id, shown[0].id, "nothing"):
        assert browser.post(f"/account/sessions/{refused}/end/").status_code == 404
    browser.post(f"/account/sessions/{shown[1].id}/end/")
    clients = (browser, phone, tablet, stranger)
    first = [client.get("/account/").status_code for client in clients]
    after = browser.post("/account/sessions/end/", follow=True).content.decode()

    assert first == [200, 302, 200, 200]
    assert "Other sessions ended: 1" in after
    assert [client.get("/account/").status_code for client in clients] == [
        200,
        302,
        302,
        200,
    ]


def test_sessions_end_after_the_password_again(browser: Client) -> None:
    phone = Client()
    phone.post("/login/", {"username": "ana", "password": PASSWORD})

    confirmation = browser.post("/account/sessions/end/")
    meanwhile = phone.get("/account/").status_code
    after = browser.post(
        confirmation["Location"], {"password": PASSWORD}, follow=True
    ).content.decode()

    assert confirmation["Location"].startswith("/account/confirm/")
    assert meanwhile == 200
    assert "Other sessions ended: 1" in after
    assert phone.get("/account/").status_code == 302


def test_an_administrator_ends_the_sessions_of_users_or_of_everyone(
    browser: Client,
) -> None:
    stranger, out = Client(), StringIO()
    stranger.force_login(person("li", "viewer"))

    for arguments in ([], ["ana", "--all"], ["ana", "missing"]):
        with pytest.raises(CommandError):
            call_command("end_sessions", *arguments)
    unchanged = browser.get("/").status_code
    call_command("end_sessions", "ana", stdout=out)
    first = [browser.get("/").status_code, stranger.get("/").status_code]
    call_command("end_sessions", "--all", stdout=out)

    assert (unchanged, first, stranger.get("/").status_code) == (200, [302, 200], 302)
    assert out.getvalue().startswith("1 sessions ended\n")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("short one", "at least 12 characters"),
        ("1qaz2wsx3edc", "too common"),
        ("12345678901234567", "entirely numeric"),
        ("anastasia-2026", "too similar to the username"),
        ("FleetAdmin-2026", "few other letters"),
        ("aaaaaaaaaaab", "fewer than 6 different characters"),
        ("abcdefghijklmnop", "fewer than 6 different characters"),
        ("xK9!xK9!xK9!xK9", "fewer than 6 different characters"),
        ("acme cluster 12", "few other letters"),
    ],
)
def test_a_weak_password_is_refused(
    browser: Client, password: str, reason: str, settings: Settings
) -> None:
    validators = settings.AUTH_PASSWORD_VALIDATORS
    settings.AUTH_PASSWORD_VALIDATORS = [
        *validators[:-1],
        {**validators[-1], "OPTIONS": {"words": ["Acme"]}},
    ]
    user = person("anastasia", "viewer")
    browser.force_login(user)
    given = {"oldpassword": PASSWORD, "password1": password, "password2": password}

    page = browser.post("/account/password/", given).content.decode()

    user.refresh_from_db()
    assert reason in page
    assert user.check_password(PASSWORD)


def test_https_is_demanded_of_everything_but_what_is_read_inside(
    settings: Settings,
) -> None:
    settings.SECURE_SSL_REDIRECT, settings.SECURE_HSTS_SECONDS = True, 31_536_000
    settings.SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    client = Client()

    plain = {address: client.get(address) for address in ("/", "/login/")}
    rest = [
        client.get(address)
        for address in ("/api/v1/clusters", "/hubs/east/api/v1/placements")
    ]
    inside = [
        client.get(address).status_code
        for address in ("/healthz", "/version", "/metrics")
    ]
    secure = client.get("/login/", headers={"X-Forwarded-Proto": "https"})

    assert {answer.status_code for answer in plain.values()} == {301}
    assert plain["/login/"]["Location"] == "https://testserver/login/"
    assert [(answer.status_code, answer.json()["type"]) for answer in rest] == [
        (403, "urn:fleetui:problem:https-required")
    ] * 2
    assert inside == [200, 200, 401]
    assert secure.status_code == 200
    assert secure["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"


def test_methods_that_nothing_serves_are_refused(browser: Client) -> None:
    for address in (
        "/",
        "/account/",
        "/api/v1/clusters",
        "/healthz",
        "/static/css/base.css",
    ):
        assert browser.generic("TRACE", address).status_code == 405, address


def test_private_responses_are_kept_by_no_cache(browser: Client) -> None:
    for address in (
        "/",
        "/clusters/",
        "/account/",
        "/login/",
        "/api/v1/clusters",
        "/admin/",
        "/nothing/",
    ):
        assert "no-store" in browser.get(address).headers["Cache-Control"], address


def test_a_refused_request_is_one_line_in_the_log(browser: Client) -> None:
    stream = logging.getLogger("django").handlers[0]
    written: list[str] = []
    emit = stream.emit
    stream.emit = lambda record: written.append(stream.format(record))  # type: ignore[method-assign]
    strict = Client(enforce_csrf_checks=True)
    try:
        browser.get("/nothing/")
        browser.get("/clusters/?q=%00")
        browser.get("/", headers={"host": "elsewhere.example"})
        strict.post("/login/", {"username": "ana"})
        Client().get("/api/v1/clusters")
    finally:
        stream.emit = emit  # type: ignore[method-assign]  # see above

    assert len(written) >= 4
    assert [text for text in written if "\n" in text] == []
