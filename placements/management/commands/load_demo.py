"""manage.py load_demo 4|9|100|5000: load or remove a demo fleet."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from fleetui.management.hub_command import HubCommand
from placements.services.demo.load import DEMO_SIZES, Loaded, load_demo, remove_demo


class Command(HubCommand):
    help = "Load a demo fleet, which replaces the present one, or remove it."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument(
            "size", nargs="?", type=int, choices=DEMO_SIZES, help="number of clusters"
        )
        what.add_argument("--remove", action="store_true", help="remove demo data")

    def handle(self, *, size: int | None, remove: bool, **_options: Any) -> None:
        now = datetime.now(UTC)
        if remove or size is None:
            self._report("removed", remove_demo(by=None, now=now))
            return
        self._report("loaded", load_demo(size, by=None, now=now))

    def _report(self, verb: str, what: Loaded) -> None:
        self.stdout.write(
            f"{verb}: {what.clusters} clusters, {what.resources} resources, {what.placements} placements"
        )
