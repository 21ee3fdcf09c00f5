"""manage.py resume_hub NAME."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.hubs.operations import change_hub
from clusters.hubs.queries import UnknownHubError
from fleetui.management.hub_command import BAD_INPUT, HubCommand


class Command(HubCommand):
    """Watch a paused hub again."""

    help = "Watch a paused hub again."
    exit_codes = {UnknownHubError: BAD_INPUT}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")

    def handle(self, *, name: str, **_options: Any) -> None:
        """Save it; the watcher notices within five seconds."""
        change_hub(name, {"paused": False}, by=None, now=datetime.now(UTC))
        self.stdout.write(f"Hub {name} resumed")
