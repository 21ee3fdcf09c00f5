"""manage.py backup FILE: a copy of the embedded database, while the console runs."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from fleetui.errors import REFUSED


class Command(BaseCommand):
    help = (
        "Write a copy of the SQLite database to a file; the console may run meanwhile. Encryption keys and "
        "sessions are not in it. PostgreSQL has pg_dump. Exit status: 0 written, 1 refused."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", help="file to write, readable by its owner only"
        )
        parser.add_argument(
            "--force", action="store_true", help="replace the file if it exists"
        )

    def handle(self, *, file: str, force: bool, **_options: Any) -> None:
        """Write the copy beside the file, so that the file is complete when it gets its name."""
        path = Path(file)
        refuse_servers()
        if not path.resolve().parent.is_dir():
            raise CommandError(f"{path.parent}: no such folder", returncode=REFUSED)
        if path.exists() and not force:
            raise CommandError(
                f"{path} exists; --force replaces it", returncode=REFUSED
            )
        if "django_session" not in connection.introspection.table_names():
            raise CommandError(
                "the database is not prepared; nothing to back up", returncode=REFUSED
            )
        with tempfile.TemporaryDirectory(
            dir=path.parent, prefix=f".{path.name}-"
        ) as folder:
            copy = Path(folder) / path.name
            copy.touch(mode=0o600)
            with closing(sqlite3.connect(copy)) as target:
                connection.connection.backup(target)
                target.execute("PRAGMA journal_mode=DELETE")
                target.execute("DELETE FROM django_session")
                target.commit()
                target.execute("VACUUM")  # what was deleted leaves no trace
                refuse_damaged(target, path)
            copy.replace(path)
        self.stdout.write(
            f"{path}: {path.stat().st_size:,} bytes. Keep the encryption keys elsewhere."
        )


def refuse_servers() -> None:
    """Raise CommandError for a database that is no file."""
    if connection.vendor != "sqlite":
        raise CommandError(
            f"DATABASE_URL names {connection.vendor}: use its own tools, see docs/guides/backup.md",
            returncode=REFUSED,
        )


def refuse_damaged(database: sqlite3.Connection, path: Path) -> None:
    """Raise CommandError for a file that is no database, or is damaged."""
    try:
        report = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
        broken = database.execute("PRAGMA foreign_key_check").fetchone()
    except sqlite3.DatabaseError as error:
        raise CommandError(
            f"{path} is no backup, or is damaged: {error}", returncode=REFUSED
        ) from error
    if report != "ok" or broken:
        raise CommandError(
            f"{path} is damaged: {report}, {broken or 'no broken row'}",
            returncode=REFUSED,
        )
