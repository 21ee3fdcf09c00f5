"""manage.py pause_hub NAME."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from fleetui.management.hub_command import HubCommand
from placements.hubs.connections.operations import change_hub


class Command(HubCommand):
    """Stop all traffic to a hub; its mirror stays."""

    help = "Stop all traffic to a hub; its mirror stays."
    paused, word = True, "paused"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")

    def handle(self, *, name: str, **_options: Any) -> None:
        """Save it; the watcher notices within five seconds."""
        change_hub(name, {"paused": self.paused}, by=None, now=datetime.now(UTC))
        self.stdout.write(f"Hub {name} {self.word}")
