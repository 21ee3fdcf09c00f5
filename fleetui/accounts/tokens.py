"""Logging in without a browser: the same limits and second factors as on the page."""

from allauth.account.adapter import get_adapter
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from fleetui.accounts.attempts import report_failure
from fleetui.accounts.forms import FactorCodeForm
from fleetui.accounts.second_factor import (
    FACTOR_MISSING,
    has_second_factor,
    requires_second_factor,
)


class LoginRefusedError(Exception):
    """Name, password or second factor are not accepted."""


class TooManyAttemptsError(Exception):
    """There were too many attempts for the account, or from the address."""


def log_in_for_token(
    request: HttpRequest, *, username: str, password: str, code: str
) -> User:
    """Return the user; the signals are those of a login. Raise LoginRefusedError or TooManyAttemptsError."""
    try:
        user: User | None = get_adapter().authenticate(
            request, username=username, password=password
        )
    except ValidationError as error:
        raise TooManyAttemptsError from error
    if user is None:
        raise LoginRefusedError("No active user has this name and password.")
    if has_second_factor(user):
        if not code:
            report_failure(request, user.get_username(), "second factor missing")
            raise LoginRefusedError(
                "This account has a second factor: send its code, or a recovery code, as `code`."
            )
        form = FactorCodeForm({"code": code}, user=user)  # type: ignore[call-arg]  # its base class has no types
        if not form.is_valid():
            if form.has_error("code", "too_many_login_attempts"):
                raise TooManyAttemptsError
            raise LoginRefusedError("The code was not accepted.")
    elif requires_second_factor(user):
        report_failure(request, username, "second factor missing")
        raise LoginRefusedError(FACTOR_MISSING)
    user_logged_in.send(sender=User, request=request, user=user)
    return user
