"""Pages of accounts are served with the static files of production; attempts are not kept between tests."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.totp.internal import auth
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed

PASSWORD = "a long enough password"
CODE_TIME = 1_800_000_015
"""When the authenticator apps of the tests show their codes, in seconds: the middle of a period."""


@pytest.fixture(autouse=True)
def _served(collected_static: Path) -> None:
    """Serve the files as in production."""


@pytest.fixture(autouse=True)
def _middle_of_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of the codes: one that is made at the end of its 30 seconds is refused."""
    monkeypatch.setattr(auth, "time", SimpleNamespace(time=lambda: CODE_TIME))


@pytest.fixture
def reported() -> Iterator[list[str]]:
    """Return what Django's signals say of logins, in their order."""
    found: list[str] = []

    def succeed(sender: object, user: Any, **_: object) -> None:  # noqa: ARG001  # what the signal passes
        found.append(f"in {user.get_username()}")

    def leave(sender: object, user: Any, **_: object) -> None:  # noqa: ARG001  # see above
        found.append(f"out {user.get_username()}")

    def fail(sender: object, credentials: dict[str, Any], **_: object) -> None:  # noqa: ARG001  # see above
        found.append(f"failed {credentials['username']}: {credentials.get('reason', 'password')}")

    receivers = ((user_logged_in, succeed), (user_logged_out, leave), (user_login_failed, fail))
    for signal, receiver in receivers:
        signal.connect(receiver)
    yield found
    for signal, receiver in receivers:
        signal.disconnect(receiver)
