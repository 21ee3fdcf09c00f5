"""Browsers for every role, and static files under their plain names."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.rows import person


@pytest.fixture(autouse=True)
def _plain_static(settings, tmp_path) -> None:
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {
            "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        },
    }


@pytest.fixture
def browser_of() -> Callable[[str], Client]:
    """Return a browser that is logged in with a role; "no-role" has none, "anonymous" is not logged in."""

    def browser(role: str) -> Client:
        client = Client()
        if role == "superuser":
            client.force_login(
                User.objects.create_superuser("root", password="a long enough password")
            )
        elif role != "anonymous":
            client.force_login(
                person(f"a-{role}", *(() if role == "no-role" else (role,)))
            )
        return client

    return browser


@pytest.fixture
def operator(browser_of: Callable[[str], Client]) -> Client:
    """Return an operator's browser."""
    return browser_of("operator")


@pytest.fixture
def viewer(browser_of: Callable[[str], Client]) -> Client:
    """Return a viewer's browser."""
    return browser_of("viewer")
