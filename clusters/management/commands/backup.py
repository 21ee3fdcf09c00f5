"""manage.py backup FILE: the database in one file, while the console runs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters.backups import BackupRefused, BadBackup, write_backup
from fleetui.errors import REFUSED


class Command(BaseCommand):
    """Write a backup of the database."""

    help = (
        "Write a backup of the database to a file; the console may run meanwhile. Encryption keys and "
        "sessions are not in it. Exit status: 0 written, 1 refused, 4 an error of disk or database."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="file to write, readable by its owner only")
        parser.add_argument("--force", action="store_true", help="replace the file if it exists")

    def handle(self, *, file: str, force: bool, **_options: Any) -> None:
        path = Path(file)
        if not path.resolve().parent.is_dir():
            raise CommandError(f"{path.parent}: no such folder", returncode=REFUSED)
        try:
            backup = write_backup(path, force=force, now=datetime.now(UTC))
        except (BackupRefused, BadBackup) as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        size = path.stat().st_size
        self.stdout.write(f"{path}: {size:,} bytes, {backup.database}, FleetUI {backup.fleetui}")
        if backup.keys:
            self.stdout.write(f"Keep the encryption keys apart: {', '.join(backup.keys)}")
