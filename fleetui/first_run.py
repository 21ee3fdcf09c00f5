"""The first administrator: made once, when there is none yet."""

import secrets
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction


class FirstRunError(Exception):
    """The first administrator cannot be made as the settings say."""


@dataclass(frozen=True, slots=True)
class NewAdministrator:
    """Who was made, with the password where nobody else knows it yet."""

    username: str
    generated_password: str | None


def make_first_administrator(*, username: str, password: str | None) -> NewAdministrator | None:
    """Make an administrator unless there is one; of several processes that try at once, one does.

    Raises FirstRunError for a name that is taken or not allowed, and for a password that is too weak.
    """
    if _has_administrator():
        return None
    user = User(username=username)
    _check(user, password)
    generated = None if password else secrets.token_urlsafe(12)
    try:
        with transaction.atomic():
            User.objects.create_superuser(username=username, password=password or generated)
    except IntegrityError as error:
        if _has_administrator():
            return None
        raise FirstRunError(
            f"the user {username!r} is there and no administrator; name another one in FLEETUI_ADMIN_USER"
        ) from error
    return NewAdministrator(username, generated)


def _has_administrator() -> bool:
    return User.objects.filter(is_superuser=True, is_active=True).exists()


def _check(user: User, password: str | None) -> None:
    try:
        User.username_validator(user.username)
    except ValidationError as error:
        raise FirstRunError(f"FLEETUI_ADMIN_USER is refused: {' '.join(error.messages)}") from error
    if password:
        try:
            validate_password(password, user)
        except ValidationError as error:
            raise FirstRunError(f"FLEETUI_ADMIN_PASSWORD is refused: {' '.join(error.messages)}") from error
