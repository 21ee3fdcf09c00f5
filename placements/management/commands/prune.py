"""manage.py prune: delete what is older than it is kept."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from fleetui.access.audit import prunable_lines
from fleetui.management.hub_command import HubCommand
from placements.services.pruning import prunable, prunable_messages, prune


class Command(HubCommand):
    help = "Delete rows and messages that are older than the settings FLEETUI_KEEP_… keep them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="count them and delete nothing"
        )

    def handle(self, *, dry_run: bool, **_options: Any) -> None:
        now = datetime.now(UTC)
        if dry_run:
            counts = {name: rows.count() for name, rows in prunable(now=now)}
            counts["access log lines"] = prunable_lines(now=now).count()
            counts["messages"] = len(prunable_messages(now=now))
        else:
            counts = prune(now=now)
        for name, count in counts.items():
            self.stdout.write(f"{count:>8} {name}")
        self.stdout.write("Nothing was deleted (dry run)." if dry_run else "Deleted.")
