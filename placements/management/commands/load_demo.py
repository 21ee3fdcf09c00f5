"""manage.py load_demo 4|9|100|5000: a fleet to try the console on, and away with it."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.demo import DEMO_SIZES
from placements.operations.demo import Loaded, NameTakenError, load_demo, remove_demo

REFUSED = 2


class Command(HubCommand):
    """Load or remove a demo fleet."""

    help = "Load a demo fleet in the place of the one that is there, or remove it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("size", nargs="?", type=int, choices=DEMO_SIZES, help="how many clusters")
        what.add_argument("--remove", action="store_true", help="take the demo data away")

    def handle(self, *, size: int | None, remove: bool, **_options: Any) -> None:
        """Load or remove, and say what."""
        now = datetime.now(UTC)
        if remove or size is None:
            self._say("removed", remove_demo(by=None, now=now))
            return
        try:
            self._say("loaded", load_demo(size, by=None, now=now))
        except NameTakenError as error:
            raise CommandError(str(error), returncode=REFUSED) from error

    def _say(self, verb: str, what: Loaded) -> None:
        self.stdout.write(
            f"{verb}: {what.clusters} clusters, {what.resources} resources, {what.placements} placements"
        )
