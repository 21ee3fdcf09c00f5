"""manage.py watch_hubs: list and watch the live hubs, and keep their mirrors; `manage.py up` runs it."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import REFUSED
from fleetui.management.hub_command import HubCommand, stopped_by_signal
from fleetui.task_queue import send_now
from placements.hubs.watching.watcher import Watcher

PROJECT_HUB = "placements.hubs.tasks.project_hub"


def wake_projection(hub: int) -> None:
    send_now(PROJECT_HUB, {"hub": hub})


class Command(HubCommand):
    """Watch live hubs until a signal, or list them once."""

    help = "List and watch the live hubs, and keep their mirrors. `manage.py up` runs it while there is one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="list everything, and end; status 1 if a hub cannot be listed",
        )

    def handle(self, *, once: bool, **_options: Any) -> None:
        watcher = Watcher(committed=wake_projection)
        with stopped_by_signal() as stopped:
            watcher.run(stopped, until=watcher.is_synced if once else lambda: False)
        if not once:
            return
        incomplete = []
        for hub in watcher.hubs.values():
            required = [one for one in hub.every_status() if one.kind.is_required]
            if not required or not all(one.is_listed for one in required):
                incomplete.append(
                    f"{hub.target.name}: {hub.condition().reason or hub.state}"
                )
        if incomplete:
            raise CommandError(
                "Not listed:\n" + "\n".join(incomplete), returncode=REFUSED
            )
