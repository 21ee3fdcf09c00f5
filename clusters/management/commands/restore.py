"""manage.py restore FILE: the database as it was when the backup was made."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from clusters.backups import (
    Backup,
    BackupRefused,
    BadBackup,
    check_fit,
    has_data,
    key_ids,
    open_backup,
    restore_data,
)
from fleetui.bootstrap import DatabaseMissingError, one_at_a_time, wait_for_database
from fleetui.errors import BAD_INPUT, ENVIRONMENT, REFUSED
from fleetui.supervisor import AlreadyRunningError, hold_lock
from fleetui.task_queue import HEARTBEAT_PERIOD, live_workers


class Command(BaseCommand):
    """Replace the database by a backup."""

    help = (
        "Replace the data by that of a backup. All parts of the console have to be stopped. Exit status: "
        "0 restored, 1 refused, 2 the file is no backup or is damaged, 4 an error of disk or database."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="file that `backup` wrote")
        parser.add_argument("--check", action="store_true", help="check the file, and change nothing")
        parser.add_argument("--force", action="store_true", help="replace the data that is there")

    def handle(self, *, file: str, check: bool, force: bool, **_options: Any) -> None:
        """Check everything first; then restore, and say which keys are missing."""
        try:
            wait_for_database(connections.settings["default"], say=self.stdout.write)
            with open_backup(Path(file)) as (archive, backup):
                check_fit(backup)
                self.stdout.write(f"{file}: FleetUI {backup.fleetui}, {backup.database}, {backup.created_at}")
                if check:
                    self._report_keys(backup)
                    return
                with ExitStack() as stack:
                    stack.enter_context(hold_lock(settings.VAR_DIR / "up.lock"))
                    # A part that starts meanwhile waits here, on whatever machine.
                    stack.enter_context(one_at_a_time(settings.VAR_DIR))
                    refuse_live_workers(say=self.stdout.write)
                    if has_data() and not force:
                        raise BackupRefused("the database has data; --force replaces it")
                    restore_data(archive, backup)
        except AlreadyRunningError as error:
            message = f"`up` runs on {settings.VAR_DIR}, as process {error}; stop all parts first"
            raise CommandError(message, returncode=REFUSED) from error
        except BackupRefused as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        except BadBackup as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        except FileNotFoundError as error:
            raise CommandError(f"{file}: {error.strerror}", returncode=BAD_INPUT) from error
        except DatabaseMissingError as error:
            raise CommandError(str(error), returncode=ENVIRONMENT) from error
        self.stdout.write("Restored. Everybody has to log in again; start the console with `up`.")
        self._report_keys(backup)

    def _report_keys(self, backup: Backup) -> None:
        """Report stored credentials and Secrets that no key here decrypts, and what key they need."""
        if not backup.credentials or set(backup.keys) & set(key_ids()):
            return
        needed = " or ".join(backup.keys) or "that was used then"
        self.stderr.write(
            f"{backup.credentials} credentials and stored Secrets need the encryption key {needed}, which is "
            "not here: set FLEETUI_CREDENTIAL_KEYS, or put credential.keys into the data folder"
        )


def refuse_live_workers(
    *, say: Callable[[str], object], sleep: Callable[[float], object] = time.sleep
) -> None:
    """Raise BackupRefused if a worker reports; after a recent report, wait whether another one comes."""
    before = live_workers(now=datetime.now(UTC))
    if not before:
        return
    patience = 2 * HEARTBEAT_PERIOD.total_seconds() + 1
    say(f"a worker reported a moment ago; waiting {patience:g} s whether it still runs")
    for _ in range(int(patience)):
        sleep(1)
        after = live_workers(now=datetime.now(UTC))
        if newer := sorted(queue for queue, at in after.items() if at != before.get(queue)):
            raise BackupRefused(f"a worker reads {' and '.join(newer)}; stop all parts first")
