"""A browser for the tests: the system's Chromium, logged in as a user, and every complaint of it counted.

Where there is none (`tests/chromium.py`) these tests are left out, and that is said; `.ci/run` installs it. A
test that ends with an error on the console, or with something that the Content-Security-Policy refused, has
failed.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection, connections
from django.test import Client
from django.test.testcases import _StaticFilesHandler
from playwright.sync_api import Browser, BrowserContext, Page, expect
from pytest_django.live_server_helper import LiveServer

from fleetui.permissions import Role
from placements.tasks import (
    fleet_changed,
    notify,
    run_cluster_calls,
    schedule_due,
    sync_due_rollouts,
)
from tests.chromium import CHROMIUM
from tests.rows import load_nine, person

# Playwright's loop runs in this thread while the tests ask the database beside it.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

Enter = Callable[..., Page]
PATIENCE = 60_000
"""Milliseconds that a test waits at most; the first page took more than ten seconds on a busy machine."""
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the browser's tests out where there is no browser."""
    if CHROMIUM.exists():
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(
                pytest.mark.skip(reason=f"there is no Chromium at {CHROMIUM}")
            )


@pytest.fixture(scope="session")
def browser_type_launch_args(
    browser_type_launch_args: dict[str, Any],
) -> dict[str, Any]:
    """Start the system's Chromium, as any user."""
    return {
        **browser_type_launch_args,
        "executable_path": str(CHROMIUM),
        "args": ["--no-sandbox", "--disable-gpu"],
    }


@pytest.fixture(autouse=True)
def _hub(request: pytest.FixtureRequest, transactional_db: None) -> None:
    """Provide a database that several threads may use at once, as the console and its workers do.

    In memory the threads of a test share one connection and its transactions, or lock whole tables.
    """
    if connection.vendor == "sqlite":
        request.getfixturevalue("file_database")
    for role in (
        Role
    ):  # a test with real transactions, here or elsewhere, ends with an empty database
        Group.objects.get_or_create(name=role.value)


@pytest.fixture
def file_database(empty_hub: Path, tmp_path: Path) -> Iterator[None]:
    """Use a file of its own as the database, for this test."""
    file, in_memory = tmp_path / "hub.sqlite3", connections["default"]
    file.write_bytes(empty_hub.read_bytes())
    del connections["default"]
    with mock.patch.dict(in_memory.settings_dict, NAME=str(file)):
        yield
        connections["default"].close()
    connections["default"] = in_memory


@pytest.fixture
def console(_hub: None, one_server: list[LiveServer]) -> LiveServer:
    """Serve the pages with the collected files, under the hashed names that they have in production."""
    if not one_server:
        with mock.patch(
            "django.contrib.staticfiles.handlers.StaticFilesHandler",
            _StaticFilesHandler,
        ):
            one_server.append(LiveServer("localhost"))
    return one_server[0]


@pytest.fixture(scope="session")
def one_server(collected_static: Path) -> Iterator[list[LiveServer]]:
    """Hold the server of all tests: it starts with the first, once its database is in its place."""
    servers: list[LiveServer] = []
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def complaints() -> list[str]:
    """Return what the browser complained of so far; a test that provokes an error clears it."""
    return []


def arrived(page: Page) -> None:
    """Wait until the page that was requested by the last click has been swapped in."""
    expect(page.locator("html:not([data-loading])")).to_be_attached()


def _user_with_roles(name: str, roles: tuple[str, ...]) -> User:
    """Return the person who is there already, or a new one with these roles."""
    return User.objects.filter(username=name).first() or person(name, *roles)


@pytest.fixture
def enter(
    browser: Browser, console: LiveServer, complaints: list[str]
) -> Iterator[Enter]:
    """Return a function that opens a page in a browser of its own, logged in as a person with these roles.

    `enter("/", "operator", width=390, dark=True, javascript=False)`
    """
    opened: list[BrowserContext] = []

    def open_page(
        path: str,
        *roles: str,
        width: int = 1440,
        dark: bool = False,
        javascript: bool = True,
        name: str = "",
    ) -> Page:
        context = browser.new_context(
            base_url=console.url,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            reduced_motion="reduce",
        )
        opened.append(context)
        client = Client()
        client.force_login(
            _user_with_roles(name or f"person{len(opened)}", roles or ("viewer",))
        )
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies(
            [
                {
                    "name": settings.SESSION_COOKIE_NAME,
                    "value": session,
                    "url": console.url,
                }
            ]
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if message.type == "error" else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in opened:
        context.close()
    assert complaints == []


@pytest.fixture
def nine() -> None:
    """Load the demo fleet of nine clusters, decided."""
    load_nine()


@pytest.fixture
def work() -> Callable[[], None]:
    """Return a function that does what the workers would do now, until nothing is left to do at once."""

    def run() -> None:
        for _ in range(20):
            for task in (
                fleet_changed,
                schedule_due,
                sync_due_rollouts,
                run_cluster_calls,
            ):
                task()
        notify()

    return run
