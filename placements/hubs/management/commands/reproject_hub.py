"""manage.py reproject_hub: make the rows of a live hub again from its mirror; the hub is not contacted."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.hub_queries import live_hub
from fleetui.apimachinery.words import counted
from fleetui.hub_scope import in_hub
from fleetui.management.hub_command import HubCommand
from placements.hubs.projection.operations import reproject
from placements.hubs.projection.unresolved import unresolved_objects


class Command(HubCommand):
    """Project the whole mirror of a hub again, for example after an upgrade."""

    help = "Make the clusters and placements of a live hub again from its mirror."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the hub")

    def handle(self, *, name: str, **_options: Any) -> None:
        hub = live_hub(name)
        with in_hub(hub.pk):
            now = datetime.now(UTC)
            count = reproject(now=now)
            unresolved = unresolved_objects(now=now).count()
        self.stdout.write(f"{counted(count, 'object')} of hub {name} projected")
        if unresolved:
            are, them = ("is", "it") if unresolved == 1 else ("are", "them")
            words = counted(unresolved, "object")
            self.stdout.write(f"{words} {are} unresolved; the page of the hub lists {them}")
