"""Many tabs on one run: one row says that nothing changed, and what changed is rendered once for all."""

import re
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group, User
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui import changes, polling
from fleetui.hub_scope import LOCAL_HUB
from fleetui.permissions import Role
from placements.models import Placement, ProblemBook
from placements.services.hub_version import stored_version
from tests.caches import forget_polls, forget_versions
from tests.rows import person
from tests.services.rollouts.world import World, one_at_a_time, world_once

pytestmark = pytest.mark.django_db

RUN = "/rollouts/web/1/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def world() -> World:
    """Make two clusters in the middle of a run."""

    def make() -> World:
        made = World(2)
        made.place("web", one_at_a_time())
        return made

    return world_once("in the middle", make)


@pytest.fixture(autouse=True)
def _stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the minute, with which every version changes, and what is read until a mark."""
    monkeypatch.setattr(changes, "monotonic", partial(float, changes.monotonic()))
    monkeypatch.setattr(changes, "time", partial(float, 1_000_000_020))


def _polled_address(client: Client, address: str = RUN) -> str:
    """Return the address that the live part of the page polls."""
    page = client.get(address).content.decode()
    return address + re.findall(r'id="li(?:ve|st)" [^>]*hx-get="([^"]*)"', page)[
        0
    ].replace("&amp;", "&")


def _tokens(page: bytes) -> set[bytes]:
    return set(re.findall(rb'name="csrfmiddlewaretoken" value="([^"]*)"', page))


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("address", [RUN, "/placements/web/", "/placements/", "/"])
def test_a_page_has_the_version_of_what_it_shows_so_that_its_first_poll_renders_nothing(
    viewer: Client, address: str
) -> None:
    _polled_address(viewer, address)
    # Another process has written, and moved the version that this one has just read.
    ProblemBook.objects.update(version=F("version") + 1)

    polled = _polled_address(viewer, address)

    forget_versions()
    assert viewer.get(polled, headers=HTMX).status_code == 204


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("address", [RUN, "/placements/web/", "/placements/", "/"])
def test_the_first_reader_after_a_change_compares_before_the_page_is_read(
    viewer: Client, address: str
) -> None:
    Placement.objects.update(health_level="changed since")
    ProblemBook.objects.update(requested_version=F("observed_version") + 1)

    polled = _polled_address(viewer, address)

    forget_versions()
    assert viewer.get(polled, headers=HTMX).status_code == 204


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("address", [RUN, "/placements/"])
def test_a_page_that_is_swapped_as_a_whole_is_no_poll(
    viewer: Client, address: str
) -> None:
    for _ in range(3):
        fragment = viewer.get(f"{address}?v=0", headers=HTMX).content
    page = viewer.get(f"{address}?v=0", headers=HTMX | {"HX-Boosted": "true"})

    assert not fragment.startswith(b"<!doctype html>")
    assert page.content.startswith(b"<!doctype html>")


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "address",
    [RUN, "/placements/web/", "/placements/?state=pending", "/", "/?by=region"],
)
def test_the_second_time_that_nothing_is_new_takes_no_query(
    viewer: Client, address: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    polled = _polled_address(viewer, address)
    assert viewer.get(polled, headers=HTMX).status_code == 204

    with django_assert_num_queries(0):
        again = viewer.get(polled, headers=HTMX)

    assert (again.status_code, again.content) == (204, b"")
    assert "Content-Security-Policy" in again.headers


@pytest.mark.parametrize("address", [RUN, "/placements/web/", "/"])
def test_what_changes_is_reported_at_once(
    viewer: Client, world: World, address: str
) -> None:
    polled = _polled_address(viewer, address)
    viewer.get(polled, headers=HTMX)

    world.pass_time(3)

    assert viewer.get(polled, headers=HTMX).status_code == 200


@pytest.mark.usefixtures("world")
def test_a_request_moves_the_version_only_by_what_it_writes(operator: Client) -> None:
    operator.get(RUN)  # compares for the first time
    versions = [stored_version(LOCAL_HUB)]
    for method, address in (
        ("get", RUN),
        ("post", "/placements/web/nothing/"),
        ("post", "/placements/web/pause/"),
    ):
        getattr(operator, method)(address)
        versions.append(stored_version(LOCAL_HUB))

    first = versions[0]
    assert versions == [first, first, first, first + 1]


@pytest.mark.usefixtures("world")
def test_another_session_is_identified(viewer: Client) -> None:
    address = _polled_address(viewer)
    viewer.get(address, headers=HTMX)
    stranger, anonymous = Client(), Client()
    stranger.force_login(person("eve"))

    assert stranger.get(address, headers=HTMX).status_code == 403
    assert (
        anonymous.get(address, headers=HTMX)
        .headers["HX-Redirect"]
        .startswith("/login/")
    )


@pytest.mark.usefixtures("world")
def test_who_lost_the_role_is_let_go_soon_and_learns_nothing_meanwhile(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = _polled_address(viewer)
    viewer.get(address, headers=HTMX)
    Group.objects.get(name=Role.VIEWER).user_set.clear()

    meanwhile = viewer.get(address, headers=HTMX)
    later = polling.monotonic() + polling.SECONDS
    monkeypatch.setattr(polling, "monotonic", lambda: later)

    assert (meanwhile.status_code, meanwhile.content) == (204, b"")
    assert viewer.get(address, headers=HTMX).status_code == 403


@pytest.mark.usefixtures("world")
def test_a_change_is_written_once_for_those_who_see_the_same(
    viewer: Client,
    operator: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    first = viewer.get(f"{RUN}?v=0", headers=HTMX).content
    other = Client()
    other.force_login(person("eve", Role.VIEWER))

    with django_assert_max_num_queries(5):
        again = other.get(f"{RUN}?v=0.1", headers=HTMX).content

    assert again == first
    assert b"/placements/web/pause/" not in first
    assert b"/placements/web/pause/" in operator.get(f"{RUN}?v=0", headers=HTMX).content


@pytest.fixture
def polled(viewer: Client, world: World, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Poll until the view need not answer; then let the rollout change, and render the new fragment."""
    other = Client()
    other.force_login(person("eve", Role.VIEWER))
    with monkeypatch.context() as patch:
        patch.setattr(polling, "FRAGMENT_SECONDS", 0.0)
        for client in (viewer, viewer, other):
            client.get(f"{RUN}?v=0", headers=HTMX)
    world.pass_time(3)
    other.get(f"{RUN}?v=0", headers=HTMX)
    return viewer


def test_a_change_that_is_rendered_takes_one_query(
    polled: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        shared = polled.get(f"{RUN}?v=0", headers=HTMX)
    version = changes.hub_version()
    with django_assert_num_queries(0):
        assert polled.get(f"{RUN}?v={version}", headers=HTMX).status_code == 204
    forget_polls()
    rendered = polled.get(f"{RUN}?v=0", headers=HTMX)

    assert shared.content == rendered.content
    assert {**shared.headers, "X-Request-ID": ""} == {
        **rendered.headers,
        "X-Request-ID": "",
    }


def test_what_is_shared_is_not_for_a_session_that_ended(polled: Client) -> None:
    polled.session.delete()

    assert (
        polled.get(f"{RUN}?v=0", headers=HTMX)
        .headers["HX-Redirect"]
        .startswith("/login/")
    )


def test_what_is_shared_is_not_for_who_lost_the_role(polled: Client) -> None:
    Group.objects.get(name=Role.VIEWER).user_set.clear()

    assert polled.get(f"{RUN}?v=0", headers=HTMX).status_code == 403


@pytest.mark.parametrize("field", [{"password": "other"}, {"is_active": False}])
def test_what_is_shared_is_not_for_a_user_who_changed(
    polled: Client, field: dict[str, Any]
) -> None:
    User.objects.filter(pk=polled.session[SESSION_KEY]).update(**field)

    assert (
        polled.get(f"{RUN}?v=0", headers=HTMX)
        .headers["HX-Redirect"]
        .startswith("/login/")
    )


@pytest.mark.usefixtures("world")
def test_the_view_answers_at_least_once_a_minute(
    viewer: Client,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    address, started = _polled_address(viewer), polling.monotonic()
    queries_after = {
        0.0: 2,
        polling.LONGEST: 4,
        polling.LONGEST + 1: 0,
        polling.LONGEST + polling.SECONDS: 2,
    }

    for seconds, queries in queries_after.items():
        monkeypatch.setattr(polling, "monotonic", partial(float, started + seconds))
        with django_assert_num_queries(queries):
            assert viewer.get(address, headers=HTMX).status_code == 204


@pytest.mark.usefixtures("world")
def test_everybody_gets_a_token_of_their_own(operator: Client) -> None:
    other = Client(enforce_csrf_checks=True)
    other.force_login(person("eve", Role.OPERATOR))

    [mine] = _tokens(operator.get(f"{RUN}?v=0", headers=HTMX).content)
    [theirs] = _tokens(other.get(f"{RUN}?v=0", headers=HTMX).content)
    pressed = other.post(
        "/placements/web/pause/", {"csrfmiddlewaretoken": theirs.decode()}
    )

    assert mine != theirs
    assert pressed.status_code == 302
    assert (
        other.post(
            "/placements/web/resume/", {"csrfmiddlewaretoken": mine.decode()}
        ).status_code
        == 403
    )


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("number", [2, 2**31, 10**30])
def test_a_run_that_there_is_not_is_not_found(client: Client, number: int) -> None:
    client.force_login(person("vera", "viewer"))

    assert client.get(f"/rollouts/web/{number}/").status_code == 404
    assert client.get(RUN).status_code == 200
