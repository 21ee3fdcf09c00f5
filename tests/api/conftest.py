"""Callers of the API, each with a role."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from rest_framework.test import APIClient

from tests.rows import api_token, person


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Serve the files as in production: the page of the documentation has some."""


@pytest.fixture
def caller(db: None) -> Callable[..., APIClient]:  # noqa: ARG001 -- callers have rows
    """Return a client that sends the token of a user with these roles."""

    def make(*roles: str) -> APIClient:
        client = APIClient()
        token = api_token(person("-".join(roles) or "no-role", *roles))
        client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
        return client

    return make


@pytest.fixture
def api(caller: Callable[..., APIClient]) -> APIClient:
    """Return an operator."""
    return caller("operator")


@pytest.fixture
def reader(caller: Callable[..., APIClient]) -> APIClient:
    """Return a viewer."""
    return caller("viewer")


@pytest.fixture
def kept_connection() -> Iterator[None]:
    """Keep the application from closing the connection that holds the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
