"""manage.py restore FILE: the embedded database as it was when the backup was made."""

import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from fleetui.bootstrap import one_at_a_time
from fleetui.errors import REFUSED
from fleetui.management.commands.backup import refuse_damaged, refuse_servers
from fleetui.supervisor import AlreadyRunningError, hold_lock
from fleetui.task_queue import live_workers


class Command(BaseCommand):
    help = (
        "Replace the data by that of a backup. All parts of the console have to be stopped. Exit status: "
        "0 restored, 1 refused: the file is damaged or of a newer version, or the console runs."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="file that `backup` wrote")
        parser.add_argument(
            "--force", action="store_true", help="replace the data that is there"
        )

    def handle(self, *, file: str, force: bool, **_options: Any) -> None:
        """Check everything first; then replace the data in one transaction."""
        path = Path(file)
        refuse_servers()
        if not path.is_file():
            raise CommandError(f"{path}: no such file", returncode=REFUSED)
        with ExitStack() as stack:
            source = stack.enter_context(
                closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True))
            )
            refuse_damaged(source, path)
            refuse_newer(source, path)
            try:
                stack.enter_context(hold_lock(settings.VAR_DIR / "up.lock"))
            except AlreadyRunningError as error:
                message = f"`up` runs on {settings.VAR_DIR}, as process {error}; stop all parts first"
                raise CommandError(message, returncode=REFUSED) from error
            # A part that starts meanwhile waits here.
            stack.enter_context(one_at_a_time(settings.VAR_DIR))
            if workers := live_workers(now=datetime.now(UTC)):
                message = f"a worker has read {' and '.join(sorted(workers))} in the last minute"
                raise CommandError(
                    f"{message}; stop all parts, and try again later",
                    returncode=REFUSED,
                )
            has_users = User._meta.db_table in connection.introspection.table_names()
            if has_users and User.objects.exists() and not force:
                raise CommandError(
                    "the database has data; --force replaces it", returncode=REFUSED
                )
            connections.close_all()
            name = Path(settings.DATABASES["default"]["NAME"])
            name.touch(mode=0o600)
            with closing(sqlite3.connect(name, timeout=20)) as target:
                source.backup(target)
            call_command("migrate", interactive=False, verbosity=0)
        self.stdout.write(
            "Restored. All users have to log in again; start the console with `up`."
        )


def refuse_newer(source: sqlite3.Connection, path: Path) -> None:
    """Raise CommandError for a backup of a newer version, or of another program."""
    known = MigrationExecutor(connection).loader.disk_migrations.keys()
    try:
        applied = source.execute(
            "SELECT app, name FROM django_migrations ORDER BY id"
        ).fetchall()
    except sqlite3.DatabaseError as error:
        raise CommandError(
            f"{path} is no backup of FleetUI: {error}", returncode=REFUSED
        ) from error
    if unknown := [".".join(one) for one in applied if one not in known]:
        raise CommandError(
            f"{path} is of a newer version: {unknown[0]} is unknown here",
            returncode=REFUSED,
        )
