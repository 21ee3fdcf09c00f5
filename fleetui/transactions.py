"""Transactions that let others write: ended in time, or tried on a copy of the database.

SQLite has one writer at a time, and on PostgreSQL those that change the same rows wait.
"""

import sqlite3
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    OperationalError,
    connection,
    connections,
    transaction,
)

from fleetui.changes import unnoticed

MOST_HELD = 1.5
"""Seconds that one transaction of a large operation may keep other writers waiting."""
PAUSE = 0.15
"""Seconds between two transactions on SQLite, where a writer that waits looks every 0.1 s."""
_DEADLOCK = "40P01"
"""A code of PostgreSQL."""

Value = TypeVar("Value")


class HeldTooLongError(Exception):
    """A transaction kept others waiting for as long as it may, and is rolled back."""


@contextmanager
def short_transaction() -> Iterator[None]:
    """Run a transaction that raises HeldTooLongError at its first query after `MOST_HELD` seconds.

    Inside of another transaction it is a part of that, without a bound of its own.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with transaction.atomic():
        until = time.monotonic() + MOST_HELD

        def check_time(
            execute: Any, sql: Any, params: Any, many: bool, context: Any
        ) -> Any:
            if time.monotonic() > until and not str(sql).startswith(
                ("RELEASE", "ROLLBACK")
            ):
                raise HeldTooLongError
            return execute(sql, params, many, context)

        with connection.execute_wrapper(check_time):
            yield


def repeated_after_deadlock(work: Callable[[], Value]) -> Value:
    """Run a transaction, and a second time if the database ended it as one of a deadlock.

    Inside of another transaction the error is raised, as that one is ended, too.
    """
    try:
        return work()
    except OperationalError as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if connection.in_atomic_block or state != _DEADLOCK:
            raise
    return work()


def write_in_parts(
    values: Sequence[Value],
    write: Callable[[Sequence[Value]], None],
    *,
    most: int,
    divide: Callable[[], Iterable[Sequence[Value]]],
) -> None:
    """Write values in one transaction, all or none, if they are at most so many and it takes a short time.

    Otherwise in one for each part that `divide` returns; it is called before anything is written. A part
    that takes too long is halved. Inside of another transaction all are a part of that.
    """
    if not values:
        return
    if connection.in_atomic_block:
        write(values)
        return
    parts = deque([values] if len(values) <= most else divide())
    is_divided = len(values) > most
    while parts:
        part = parts.popleft()

        def write_part() -> None:
            with transaction.atomic() if len(part) == 1 else short_transaction():  # noqa: B023 -- run at once
                write(part)  # noqa: B023 -- as above

        try:
            repeated_after_deadlock(write_part)
        except HeldTooLongError:
            middle = len(part) // 2
            halves = (part[middle:], part[:middle])
            parts.extendleft(halves if is_divided else reversed(list(divide())))
            is_divided = True
        if parts and connection.vendor == "sqlite":
            time.sleep(PAUSE)


def try_out(work: Callable[[], Value]) -> Value:
    """Return what some work returns, and roll back what it writes.

    What takes longer than others may wait is started again, on SQLite with a copy of the database. The
    result must not read the database later.
    """

    def rolled_back() -> Value:
        with unnoticed():
            result = work()
        transaction.set_rollback(True)
        return result

    try:
        with short_transaction():
            return rolled_back()
    except HeldTooLongError:
        with _copied_database(), transaction.atomic():
            return rolled_back()


@contextmanager
def _copied_database() -> Iterator[None]:
    """Make this thread use a copy of the SQLite file, which is removed afterwards."""
    original = connections[DEFAULT_DB_ALIAS]
    if original.vendor != "sqlite":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tried-", dir=settings.VAR_DIR) as folder:
        path = Path(folder) / "copy.sqlite3"
        original.ensure_connection()
        with original.wrap_database_errors, closing(sqlite3.connect(path)) as target:
            original.connection.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
        copy = original.copy()
        copy.settings_dict["NAME"] = path
        copy.settings_dict["OPTIONS"]["init_command"] = (
            "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF;"
        )
        copy.execute_wrappers = list(original.execute_wrappers)
        connections[DEFAULT_DB_ALIAS] = copy
        try:
            yield
        finally:
            connections[DEFAULT_DB_ALIAS] = original
            copy.close()
