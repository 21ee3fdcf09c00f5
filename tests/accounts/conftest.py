"""Pages of accounts are served with the static files of production; attempts are not kept between tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.signals import (
    user_logged_in,
    user_logged_out,
    user_login_failed,
)
from pytest_django import Settings

PASSWORD = "a long enough password"


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Serve the files as in production."""


@pytest.fixture(autouse=True)
def _accept_the_last_code(settings: Settings) -> None:
    """Accept the code of the period before: a code that is made at the end of its 30 seconds is in time."""
    settings.MFA_TOTP_TOLERANCE = 1


@pytest.fixture
def reported() -> Iterator[list[str]]:
    """Return what Django's signals say of logins, in their order."""
    found: list[str] = []

    def succeed(sender: object, user: Any, **_: object) -> None:  # noqa: ARG001  # what the signal passes
        found.append(f"in {user.get_username()}")

    def leave(sender: object, user: Any, **_: object) -> None:  # noqa: ARG001  # see above
        found.append(f"out {user.get_username()}")

    def fail(sender: object, credentials: dict[str, Any], **_: object) -> None:  # noqa: ARG001  # see above
        found.append(
            f"failed {credentials['username']}: {credentials.get('reason', 'password')}"
        )

    receivers = (
        (user_logged_in, succeed),
        (user_logged_out, leave),
        (user_login_failed, fail),
    )
    for signal, receiver in receivers:
        signal.connect(receiver)
    yield found
    for signal, receiver in receivers:
        signal.disconnect(receiver)
