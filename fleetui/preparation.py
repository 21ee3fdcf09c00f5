"""What has to be done before the parts start: wait for the database, migrate, collect static files."""

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.utils import ConnectionHandler

DATABASE_SECONDS = 30.0
_PAUSE_SECONDS = 0.5
_ADVISORY_LOCK = 0xF1EE7


class DatabaseMissingError(Exception):
    """The database did not answer in time."""


def wait_for_database(
    settings: dict[str, Any], *, seconds: float = DATABASE_SECONDS, say: Callable[[str], None]
) -> None:
    """Return when the database answers, and say once that it does not yet.

    Raises DatabaseMissingError when the time is over.
    """
    # Without the pool, which would try for its own thirty seconds and not say why it failed.
    options = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    probe = ConnectionHandler({"default": {**settings, "OPTIONS": options}})["default"]
    deadline = time.monotonic() + seconds
    has_said = False
    while True:
        try:
            probe.ensure_connection()
        except OperationalError as error:
            reason = str(error).splitlines()[0]
            if time.monotonic() >= deadline:
                raise DatabaseMissingError(
                    f"the database did not answer within {seconds:g} s: {reason}"
                ) from error
            if not has_said:
                say(f"waiting up to {seconds:g} s for the database: {reason}")
            has_said = True
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
        else:
            probe.close()
            return


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let only one process prepare at a time, here and, where PostgreSQL is shared, on all machines."""
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


def migrate() -> None:
    """Bring the tables up to date."""
    call_command("migrate", interactive=False, verbosity=0)


def collect_static_files(*, root: Path, stamp: Path) -> bool:
    """Collect the static files if one has changed since `stamp` was written, and tell whether it was so."""
    found = _fingerprint()
    is_current = (root / "staticfiles.json").exists() and stamp.exists()
    if is_current and stamp.read_text(encoding="ascii") == found:
        return False
    # Without `clear` a copy would stay that is younger than the changed file, and files of packages are old.
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(found, encoding="ascii")
    return True


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list([]):
            state = Path(storage.path(name)).stat()
            digest.update(f"{name} {state.st_mtime_ns} {state.st_size}\n".encode())
    return digest.hexdigest()
