"""Errors of the environment: disk, folder, database and broker, what to do about each, and one log line."""

import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from shutil import disk_usage
from threading import Lock
from time import monotonic

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.utils import DatabaseError
from kombu.exceptions import OperationalError as BrokerError

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
    "disk-full",
    "The disk is full",
    "Nothing was changed; free space on the disk of the database",
    60,
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
    "database-locked",
    "The database is locked by another process",
    "Nothing was changed; try again",
    2,
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
BROKER_STOPPED = EnvironmentProblem(
    "broker-stopped",
    "The broker does not respond",
    "Check that it is running and that CELERY_BROKER_URL names it; the console continues when it is back",
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


def environment_problem(error: BaseException | None) -> EnvironmentProblem | None:
    """Return the cause of an error outside of the console; None for any other error."""
    for cause in causes_of(error):
        if isinstance(cause, OSError) and cause.errno in _BY_ERRNO:
            return _BY_ERRNO[cause.errno]
        if isinstance(cause, BrokerError) or type(cause).__module__.startswith(
            ("redis.exceptions", "amqp.exceptions")
        ):
            return BROKER_STOPPED
        if not isinstance(cause, (DatabaseError, InterfaceError)):
            continue
        if type(cause.__cause__).__module__.startswith("psycopg"):
            return _of_postgresql(cause)
        if problem := _of_sqlite(str(cause)):
            return problem
    return None


def _of_sqlite(message: str) -> EnvironmentProblem | None:
    problems = (one for part, one in _BY_SQLITE_MESSAGE.items() if part in message)
    problem = next(problems, None)
    if (
        problem in (READ_ONLY, DISK_ERROR)
        and disk_usage(settings.VAR_DIR).free < SMALLEST_FREE
    ):
        # SQLite cannot create the files beside the database then, and does not say why.
        return DISK_FULL
    return problem


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _of_postgresql(error: DatabaseError | InterfaceError) -> EnvironmentProblem | None:
    state = getattr(error.__cause__, "sqlstate", None)
    if state:
        prefixes = (state[:length] for length in (5, 3, 2))
        return next(
            (_BY_SQLSTATE[prefix] for prefix in prefixes if prefix in _BY_SQLSTATE),
            None,
        )
    # Errors of connecting have no code: only their text distinguishes a refusal from a stopped server.
    if any(
        part in str(error)
        for part in ("authentication failed", "no password supplied", "does not exist")
    ):
        return REFUSED
    return STOPPED if isinstance(error, (OperationalError, InterfaceError)) else None


LASTING = (
    DISK_FULL,
    READ_ONLY,
    DISK_ERROR,
    CORRUPTED,
    STOPPED,
    REFUSED,
    BROKER_STOPPED,
)
"""What every task and request meets until an operator acts; the others may be gone at the next try."""
REPEAT_SECONDS = 60.0
_lock = Lock()
_met_at: dict[EnvironmentProblem, float] = {}


def note_problem(problem: EnvironmentProblem) -> None:
    _met_at[problem] = monotonic()


def disk_problem() -> EnvironmentProblem | None:
    """Return why nothing can be written: its disk is full, or a statement failed lately."""
    try:
        if disk_usage(settings.VAR_DIR).free < SMALLEST_FREE:
            return DISK_FULL
    except OSError as error:
        return environment_problem(error)
    now = monotonic()
    recent = (
        problem
        for problem in (DISK_FULL, READ_ONLY, DISK_ERROR, CORRUPTED)
        if problem in _met_at and now - _met_at[problem] < REPEAT_SECONDS
    )
    return next(recent, None)


class EnvironmentFilter(logging.Filter):
    """Writes one line for each kind of lasting problem, once a minute with how many errors it stands for.

    The traceback of the task or request that met the problem says nothing of its cause.
    """

    def __init__(
        self, name: str = "", *, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(name)
        self._clock = clock
        self._written_at: dict[EnvironmentProblem, float] = {}
        self._left_out: Counter[EnvironmentProblem] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        values = (
            record.args.values()
            if isinstance(record.args, Mapping)
            else record.args or ()
        )
        errors = [record.exc_info[1]] if record.exc_info else []
        errors += [value for value in values if isinstance(value, BaseException)]
        problem = next(
            (found for error in errors if (found := environment_problem(error))), None
        )
        if problem not in LASTING:
            return True
        note_problem(problem)
        with _lock:
            now = self._clock()
            if (
                problem in self._written_at
                and now - self._written_at[problem] < REPEAT_SECONDS
            ):
                self._left_out[problem] += 1
                return False
            self._written_at[problem] = now
            more = self._left_out.pop(problem, 0)
        record.msg = (
            f"{problem} ({more} more errors since the last line)"
            if more
            else str(problem)
        )
        record.args = ()
        record.exc_info = record.exc_text = None
        return True
