"""manage.py checks_file: print or replace the `.fleetui.yaml` of the hub."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.management.hub_command import HubCommand
from placements.engine.checks.file import NAME
from placements.services.assertions import save_checks_file, stored_file

INVALID = 2


class Command(HubCommand):
    """Print the file, or replace it by another one."""

    help = f"Print the {NAME} of the hub, or replace it by a file. Exit status: 2 the file is invalid."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-f", "--filename", metavar="PATH", help="file that replaces it"
        )

    def handle(self, *, filename: str | None, **_options: Any) -> None:
        if filename is None:
            self.stdout.write(stored_file().text, ending="")
            return
        text = Path(filename).read_text(encoding="utf-8")
        try:
            saved = save_checks_file(text, by=None, now=datetime.now(UTC))
        except InvalidManifest as invalid:
            raise CommandError(
                "\n".join(map(str, invalid.errors)), returncode=INVALID
            ) from invalid
        self.stdout.write(f"{NAME} saved, revision {saved.revision}")
