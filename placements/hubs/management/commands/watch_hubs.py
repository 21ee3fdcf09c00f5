"""manage.py watch_hubs: list and watch the live hubs, and keep their mirrors; `manage.py up` runs it."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import REFUSED
from fleetui.hub_scope import in_hub
from fleetui.management.hub_command import HubCommand, stopped_by_signal
from fleetui.task_queue import send_now
from placements.hubs.projection.operations import project_changes, rejudge
from placements.hubs.projection.placements import QUIET
from placements.hubs.replay.observed_decisions import observe_due
from placements.hubs.watching.watcher import Watcher

PROJECT_HUB = "placements.hubs.tasks.project_hub"


def wake_projection(hub: int) -> None:
    send_now(PROJECT_HUB, {"hub": hub})


def project_and_replay(*, now: datetime) -> None:
    """Do all that is due in the hub in scope; what was listed at once has settled."""
    while project_changes(now=now):
        pass
    rejudge(now=now)
    later = now + QUIET
    while observe_due(now=later):
        pass


class Command(HubCommand):
    help = "List and watch the live hubs, and keep their mirrors. `manage.py up` runs it while there is one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="list everything, and end; status 1 if a hub cannot be listed",
        )

        parser.add_argument(
            "--project",
            action="store_true",
            help="with --once: also do what the workers would do with what was listed",
        )

    def handle(self, *, once: bool, project: bool = False, **_options: Any) -> None:
        watcher = Watcher(committed=wake_projection)
        with stopped_by_signal() as stopped:
            watcher.run(stopped, until=watcher.is_synced if once else lambda: False)
        if not once:
            return
        incomplete = [
            f"{hub.target.name}: {hub.condition().reason or hub.state}"
            for hub in watcher.hubs.values()
            if not hub.has_required
        ]
        if incomplete:
            raise CommandError(
                "Not listed:\n" + "\n".join(incomplete), returncode=REFUSED
            )
        for target in watcher.hubs if project else ():
            with in_hub(target):
                project_and_replay(now=datetime.now(UTC))
