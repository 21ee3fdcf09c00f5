"""Pages are tested with the static files that they are served with, by four people.

Everyone gets a browser of their own: no account, an account without a role, a viewer, an operator.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from placements.models import Placement
from placements.services.resources.operations import apply_resources
from tests.database import load_once
from tests.rows import (
    NOW,
    config_map,
    decided,
    joined,
    load_nine,
    namespace,
    person,
    pick_n_spec,
)
from tests.web.reading import page_text


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Serve the files as in production."""


def _browser(name: str, *roles: str) -> Client:
    client = Client()
    client.force_login(person(name, *roles))
    return client


@pytest.fixture
def stranger() -> Client:
    """Return the browser of a user without a role."""
    return _browser("stranger")


@pytest.fixture
def viewer() -> Client:
    """Return the browser of a viewer."""
    return _browser("vera", "viewer")


@pytest.fixture
def operator() -> Client:
    """Return the browser of an operator."""
    return _browser("ana", "operator")


@pytest.fixture
def web() -> Placement:
    """Make a small fleet, two resources, and the placement `web` that picked two of three clusters."""

    def load() -> None:
        apply_resources([namespace("shop"), config_map("settings")], by=None, now=NOW)
        joined("bravelion", region="east")
        joined("jumpingcat", region="west")
        joined("nimblefox", region="west")
        decided("web", pick_n_spec(2))

    load_once("web", load)
    return Placement.objects.get(name="web")


@pytest.fixture
def nine() -> None:
    """Load the demo of nine clusters, decided."""
    load_nine()


@pytest.fixture
def decision_id(web: Placement) -> str:
    """Return the id of the decision on `web`."""
    return web.decisions.select_related("record").get().record.decision_id


@pytest.fixture
def text_of() -> Callable[[Client, str], str]:
    """Return a function that fetches a page that must be there."""

    def fetch(client: Client, address: str) -> str:
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.status_code)
        return page_text(answer)

    return fetch
