"""Startup: wait for the database, migrate, collect static files, create the first administrator."""

import fcntl
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.staticfiles.finders import get_finders
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.utils import ConnectionHandler

from fleetui.monitoring import check_migrations, schema_problem

DATABASE_SECONDS = 30.0
MIGRATION_SECONDS = 600.0
_PAUSE_SECONDS = 0.5
_ADVISORY_LOCK = 0xF1EE7
_UNUSED = [
    "redoc",
    "rest_framework",
    "swagger-ui-standalone-preset.*",
    "htmax-*",
    "htmx-4*",
    "htmx-2.js",
    "jquery.js",
    "xregexp.js",
    "select2.full.js",
]
"""Static files of packages that no page refers to: compressing them took longer than all others."""


class DatabaseMissingError(Exception):
    """The database did not answer in time."""


def wait_for_database(
    settings: dict[str, Any],
    *,
    seconds: float = DATABASE_SECONDS,
    say: Callable[[str], None],
) -> None:
    """Wait until the database responds; report a delay once. Raise DatabaseMissingError after the timeout."""
    # Without the pool, which would retry for thirty seconds and hide the reason.
    options = {
        name: value for name, value in settings["OPTIONS"].items() if name != "pool"
    }
    probe = ConnectionHandler({"default": {**settings, "OPTIONS": options}})["default"]
    deadline = time.monotonic() + seconds
    has_reported = False
    while True:
        try:
            probe.ensure_connection()
        except OperationalError as error:
            reason = str(error).splitlines()[0]
            if time.monotonic() >= deadline:
                raise DatabaseMissingError(
                    f"the database did not answer within {seconds:g} s: {reason}"
                ) from error
            if not has_reported:
                say(f"waiting up to {seconds:g} s for the database: {reason}")
            has_reported = True
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
        else:
            probe.close()
            return


def wait_for_migrations(
    settings: dict[str, Any],
    *,
    seconds: float = MIGRATION_SECONDS,
    say: Callable[[str], None],
) -> None:
    """Wait until another process has applied all migrations; report a delay once.

    Raises DatabaseMissingError after the timeout.
    """
    wait_for_database(settings, say=say)
    deadline, has_reported = time.monotonic() + seconds, False
    while problem := check_migrations():
        if time.monotonic() >= deadline:
            raise DatabaseMissingError(f"not prepared within {seconds:g} s: {problem}")
        if not has_reported:
            say(f"waiting up to {seconds:g} s for `prepare`: {problem}")
        has_reported = True
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Serialize the preparation: of this machine, with PostgreSQL of all machines."""
    with (folder / "prepare.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if connection.vendor != "postgresql":
            yield
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])


class UnknownSchemaError(Exception):
    """The tables are not those of this version, although its migrations count as applied."""


def migrate() -> None:
    """Apply the migrations. Raise UnknownSchemaError."""
    call_command("migrate", interactive=False, verbosity=0)
    if problem := schema_problem():
        raise UnknownSchemaError(problem)


def collect_static_files(*, root: Path, stamp: Path) -> bool:
    """Collect the static files if one has changed since `stamp` was written, and return whether it was so."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list(_UNUSED):
            state = Path(storage.path(name)).stat()
            digest.update(f"{name} {state.st_mtime_ns} {state.st_size}\n".encode())
    if (
        (root / "staticfiles.json").exists()
        and stamp.exists()
        and stamp.read_text(encoding="ascii") == digest.hexdigest()
    ):
        return False
    # Without `clear` a copy would stay that is younger than the changed file, and files of packages are old.
    call_command(
        "collectstatic",
        interactive=False,
        clear=True,
        verbosity=0,
        ignore_patterns=[*_UNUSED],
    )
    stamp.write_text(digest.hexdigest(), encoding="ascii")
    return True


class FirstRunError(Exception):
    """The first administrator cannot be created with these settings."""


@dataclass(frozen=True, slots=True)
class NewAdministrator:
    username: str
    generated_password: str | None


def make_first_administrator(
    *, username: str, password: str | None
) -> NewAdministrator | None:
    """Create an administrator unless one exists; safe with concurrent processes.

    Raises FirstRunError for a name that is taken or not allowed, and for a password that is too weak.
    """
    if _has_administrator():
        return None
    setting, user = "FLEETUI_ADMIN_USER", User(username=username)
    try:
        User.username_validator(username)
        if password:
            setting = "FLEETUI_ADMIN_PASSWORD"
            validate_password(password, user)
    except ValidationError as error:
        raise FirstRunError(
            f"{setting} is refused: {' '.join(error.messages)}"
        ) from error
    generated = None if password else secrets.token_urlsafe(16)
    try:
        with transaction.atomic():
            User.objects.create_superuser(
                username=username, password=password or generated
            )
    except IntegrityError as error:
        if _has_administrator():
            return None
        raise FirstRunError(
            f"the user {username!r} is there and no administrator; name another one in FLEETUI_ADMIN_USER"
        ) from error
    return NewAdministrator(username, generated)


def _has_administrator() -> bool:
    return User.objects.filter(is_superuser=True, is_active=True).exists()
