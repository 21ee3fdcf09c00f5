"""API tokens: creating, finding and revoking them. What is stored is a hash."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from http import HTTPStatus

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from fleetui.access.audit import record_access
from fleetui.access.models import LONGEST_TOKEN_NAME, SCOPES, ApiToken, ServiceAccount
from fleetui.access.notices import send_notice
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.bulk import first_or_raise
from fleetui.errors import FleetError, UnknownObject
from fleetui.permissions import set_scopes

MOST_TOKENS = 50
LOGIN = "login "
"""How the names of tokens start that were created with a password."""
MOST_LOGIN_TOKENS = 20
MARK = "fleetui_"
"""Tokens start with it, so that scanners of source code recognise them."""
_USED_EVERY = timedelta(minutes=1)


class UnknownTokenError(UnknownObject):
    problem_type = "unknown-token"


class NotOwnerError(FleetError, PermissionError):
    """Tokens of others are for superusers, and only those of service accounts can be created."""

    status = HTTPStatus.FORBIDDEN
    problem_type = ""


def create_token(
    user: User, *, name: str, scopes: Iterable[str], days: int, by: User, now: datetime
) -> tuple[ApiToken, str]:
    """Create a token; return its row, and the token itself, which cannot be read again.

    Raise InvalidManifest, NotOwnerError.
    """
    if user != by and not (
        by.is_superuser and ServiceAccount.objects.filter(user=user).exists()
    ):
        raise NotOwnerError(
            "Tokens can be created for yourself; superusers create those of service accounts."
        )
    wanted = sorted(set(scopes), key=lambda one: (one not in SCOPES, one))
    raise_errors(_errors(name, wanted, days))
    with transaction.atomic():
        User.objects.select_for_update().get(
            pk=user.pk
        )  # so that the number stays within its limit
        ApiToken.objects.filter(user=user, expires_at__lte=now).delete()
        if ApiToken.objects.filter(user=user).count() >= MOST_TOKENS:
            raise InvalidManifest.of(
                "name",
                "too-many",
                f"{user} has {MOST_TOKENS} tokens, which is the most",
                "revoke one that is not needed",
            )
        if ApiToken.objects.filter(user=user, name=name).exists():
            raise InvalidManifest([_duplicate(name)])
        secret = MARK + secrets.token_urlsafe(32)
        row = ApiToken.objects.create(
            user=user,
            name=name,
            prefix=secret[: len(MARK) + 6],
            digest=digest_of_token(secret),
            scopes=" ".join(scope for scope in SCOPES if scope in wanted),
            created_at=now,
            created_by=by.get_username(),
            expires_at=now + timedelta(days=days),
        )
        record_access(
            "token created",
            str(row),
            by=by,
            details={
                "scopes": row.scopes,
                "expires": row.expires_at.isoformat(timespec="seconds"),
                "prefix": row.prefix,
            },
            now=now,
        )
        if not name.startswith(LOGIN):  # programs that log in get one each time
            send_notice(user, f"The API token {name} was created")
    return row, secret


def create_login_token(
    user: User, *, scopes: Iterable[str], days: int, now: datetime
) -> tuple[ApiToken, str]:
    """Create a token for a user who gave the password; the oldest of 20 such tokens ends.

    Raise InvalidManifest.
    """
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        rows = ApiToken.objects.filter(user=user, name__startswith=LOGIN)
        kept = rows.order_by("-created_at", "-pk").values_list("pk", flat=True)[
            : MOST_LOGIN_TOKENS - 1
        ]
        rows.exclude(pk__in=list(kept)).delete()
        return create_token(
            user,
            name=f"{LOGIN}{now:%Y-%m-%d %H:%M:%S.%f}",
            scopes=scopes,
            days=days,
            by=user,
            now=now,
        )


def _errors(name: str, scopes: list[str], days: int) -> list[FieldError]:
    errors = []
    if not name.strip() or len(name) > LONGEST_TOKEN_NAME or not name.isprintable():
        errors.append(
            FieldError(
                "name",
                "bad-format",
                f"Invalid value: {name[:80]!r}",
                f"1 to {LONGEST_TOKEN_NAME} printable characters",
            )
        )
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        message = (
            f"Unsupported value: {str(unknown[0])[:80]!r}"
            if unknown
            else "Required value"
        )
        errors.append(
            FieldError(
                "scopes",
                "unsupported" if unknown else "required",
                message,
                ", ".join(SCOPES),
            )
        )
    most = settings.TOKEN_MOST_DAYS
    if not 1 <= days <= most:
        errors.append(
            FieldError("days", "out-of-range", f"Invalid value: {days}", f"1 to {most}")
        )
    return errors


def _duplicate(name: str) -> FieldError:
    return FieldError(
        "name",
        "duplicate",
        f"Duplicate value: {name!r}",
        "a name that no token of the user has",
    )


def digest_of_token(secret: str) -> str:
    """Return the hash of a token; it is random, so that no slow hash is needed."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def user_of_token(secret: str, *, now: datetime) -> tuple[User, ApiToken] | None:
    """Return the user of a token with the scopes of the token, and its row; None if it is not valid.

    One query; when it was last used is written once a minute.
    """
    row = (
        ApiToken.objects.select_related("user")
        .filter(digest=digest_of_token(secret))
        .first()
    )
    if row is None or row.expires_at <= now or not row.user.is_active:
        return None
    if row.last_used_at is None or row.last_used_at <= now - _USED_EVERY:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)
    user: User = row.user
    set_scopes(user, row.scope_names)
    return user, row


def visible_tokens(user: User) -> QuerySet[ApiToken]:
    """Return the tokens of a user; for superusers those of service accounts as well.

    The user of commands on this machine has no row, thus no tokens of its own.
    """
    rows = ApiToken.objects.select_related("user")
    own = rows.filter(user_id=user.pk)
    return (
        own | rows.filter(user__service_account__isnull=False)
        if user.is_superuser
        else own
    )


def revoke_token(number: int, *, by: User, now: datetime) -> ApiToken:
    """Delete a token; it is refused from the next request on. Raise UnknownTokenError."""
    with transaction.atomic():
        row = first_or_raise(
            visible_tokens(by).filter(pk=number),
            UnknownTokenError(f"API token {number} not found"),
        )
        ApiToken.objects.filter(pk=number).delete()
        record_access(
            "token revoked", str(row), by=by, details={"prefix": row.prefix}, now=now
        )
    return row


def revoke_all_tokens(user: User, *, by: User | None, now: datetime) -> int:
    """Delete all tokens of a user, as on request with a change of the password; return how many."""
    with transaction.atomic():
        rows = list(ApiToken.objects.filter(user=user).select_related("user"))
        ApiToken.objects.filter(pk__in=[row.pk for row in rows]).delete()
        for row in rows:
            record_access(
                "token revoked",
                str(row),
                by=by,
                details={"prefix": row.prefix},
                now=now,
            )
    return len(rows)


def create_service_account(
    username: str, *, purpose: str, by: User, now: datetime
) -> ServiceAccount:
    """Create a user that cannot log in on pages. Raise InvalidManifest if the name is in use."""
    try:
        with transaction.atomic():
            user = User.objects.create_user(username)
            user.set_unusable_password()
            row = ServiceAccount.objects.create(
                user=user, purpose=purpose, created_at=now, created_by=by.get_username()
            )
            record_access(
                "account changed",
                username,
                by=by,
                details={"created": "service account"},
                now=now,
            )
    except IntegrityError as error:
        raise InvalidManifest([_duplicate(username)]) from error
    return row
