"""Errors of the environment: disk, folder and database, and what to do about each."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from shutil import disk_usage

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.utils import DatabaseError

ENVIRONMENT = 4
"""The exit status of a command that fails because of its environment."""
SMALLEST_FREE = 1024 * 1024
"""A disk with fewer free bytes counts as full."""
ENVIRONMENT_ERRORS = (DatabaseError, InterfaceError, OSError)


@dataclass(frozen=True, slots=True)
class EnvironmentProblem:
    """A cause outside of the console: what it is, what to do, and in how many seconds to try again."""

    code: str
    message: str
    advice: str
    retry_after: int = 10

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}."


DISK_FULL = EnvironmentProblem(
    "disk-full", "The disk is full", "Nothing was changed; free space on the disk of the database", 60
)
READ_ONLY = EnvironmentProblem(
    "read-only",
    "The database or its folder cannot be written",
    "Check the owner and the permissions of the folder (FLEETUI_VAR_DIR) and whether the disk is read-only",
    60,
)
STOPPED = EnvironmentProblem(
    "database-stopped",
    "The database does not respond",
    "Check that it is running and that DATABASE_URL names it; the console continues when it is back",
)
REFUSED = EnvironmentProblem(
    "database-refused",
    "The database refuses the connection",
    "Check user, password and database name in DATABASE_URL",
    60,
)
LOCKED = EnvironmentProblem(
    "database-locked", "The database is locked by another process", "Nothing was changed; try again", 2
)
SLOW_STATEMENT = EnvironmentProblem(
    "statement-ended",
    "The database ended a statement that took too long",
    "Nothing was changed; request less at once, or raise FLEETUI_REQUEST_SECONDS",
    60,
)
DISK_ERROR = EnvironmentProblem(
    "disk-error",
    "The disk of the database reports an error",
    "Check its free space and the system log; restore the file from a backup if the disk is defective",
    60,
)
CORRUPTED = EnvironmentProblem(
    "database-corrupted",
    "The database file is corrupted",
    "Stop the console and restore the file from a backup; sqlite3 FILE .recover may save the rest",
    3600,
)

_BY_ERRNO = {
    errno.ENOSPC: DISK_FULL,
    errno.EDQUOT: DISK_FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: READ_ONLY,
    errno.EPERM: READ_ONLY,
}
_BY_SQLITE_MESSAGE = {
    "database or disk is full": DISK_FULL,
    "readonly database": READ_ONLY,
    "unable to open database file": READ_ONLY,
    "disk I/O error": DISK_ERROR,
    "is locked": LOCKED,
    "disk image is malformed": CORRUPTED,
    "file is not a database": CORRUPTED,
}
_BY_SQLSTATE = {
    "53100": DISK_FULL,
    "25006": READ_ONLY,
    "40": LOCKED,
    "53": LOCKED,
    "55P03": LOCKED,
    "28": REFUSED,
    "3D": REFUSED,
    "XX": CORRUPTED,
    "57014": SLOW_STATEMENT,
    "08": STOPPED,
    "57P": STOPPED,
}
"""Codes and classes of PostgreSQL (https://www.postgresql.org/docs/current/errcodes-appendix.html)."""
_REFUSALS = ("authentication failed", "no password supplied", "does not exist")


def environment_problem(error: BaseException | None) -> EnvironmentProblem | None:
    """Return the cause of an error outside of the console; None for any other error."""
    for one in causes_of(error):
        if isinstance(one, OSError) and one.errno in _BY_ERRNO:
            return _BY_ERRNO[one.errno]
        if not isinstance(one, (DatabaseError, InterfaceError)):
            continue
        if type(one.__cause__).__module__.startswith("psycopg"):
            return _of_postgresql(one)
        text = str(one)
        problem = next((problem for part, problem in _BY_SQLITE_MESSAGE.items() if part in text), None)
        if problem in (READ_ONLY, DISK_ERROR) and disk_usage(settings.VAR_DIR).free < SMALLEST_FREE:
            # SQLite cannot create the files beside the database then, and does not say why.
            return DISK_FULL
        if problem:
            return problem
    return None


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _of_postgresql(error: DatabaseError | InterfaceError) -> EnvironmentProblem | None:
    state = getattr(error.__cause__, "sqlstate", None)
    if state:
        prefixes = (state[:length] for length in (5, 3, 2))
        return next((_BY_SQLSTATE[one] for one in prefixes if one in _BY_SQLSTATE), None)
    # Errors of connecting have no code: only their text distinguishes a refusal from a stopped server.
    if any(part in str(error) for part in _REFUSALS):
        return REFUSED
    return STOPPED if isinstance(error, (OperationalError, InterfaceError)) else None
