"""manage.py disconnect_hub NAME --yes: remove a live hub with its mirror."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import UNCONFIRMED
from fleetui.management.hub_command import HubCommand
from placements.hubs.connections.operations import delete_rows, remove_hub


class Command(HubCommand):
    """Remove a live hub: its credentials immediately, its mirror as soon as no watcher has it."""

    help = "Remove a live hub with its credentials and its mirror. Nothing is changed on the hub."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--yes", action="store_true", help="confirm the removal")

    def handle(self, *, name: str, yes: bool, **_options: Any) -> None:
        """Remove it; the sweep deletes what a watcher still holds."""
        if not yes:
            raise CommandError(f"Repeat the command with --yes to remove {name}", returncode=UNCONFIRMED)
        hub = remove_hub(name, by=None, now=datetime.now(UTC))
        rest = " The rest of its mirror is deleted in the background." if delete_rows(hub.pk) else ""
        self.stdout.write(f"Hub {name} removed.{rest}")
