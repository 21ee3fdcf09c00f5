"""Callers of the API, each with a role."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient

from tests.rows import person


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Serve the files as in production: the page of the documentation has some."""


@pytest.fixture
def caller(db: None) -> Callable[..., APIClient]:  # noqa: ARG001 -- callers have rows
    """Return a client that sends the token of a user with these roles."""

    def make(*roles: str) -> APIClient:
        token, _ = Token.objects.get_or_create(user=person("-".join(roles) or "nobody", *roles))
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Token {token.key}")
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
