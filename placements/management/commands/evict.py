"""manage.py evict PLACEMENT CLUSTER: evict a placement within its disruption budget."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from placements.models import Eviction
from placements.services.actions import ACTIONS, ActionKind
from placements.services.disruption.queries import event_line
from placements.services.results import get_placement

NOT_DONE = 1


class Command(HubCommand):
    """Evict a placement from a cluster."""

    help = "Evict a placement from a cluster. A cluster without a taint may be selected again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("placement", metavar="PLACEMENT")
        parser.add_argument("cluster", metavar="CLUSTER")

    def handle(self, *, placement: str, cluster: str, **_options: Any) -> None:
        """Evict; exit status 1 if the disruption budget forbids it, 2 if it is invalid."""
        name = get_placement(placement).full_name
        action = ACTIONS[ActionKind.ROLLING, "evict"]
        row = action.perform(name, cluster, by=None, now=datetime.now(UTC))
        if row.outcome != Eviction.Outcome.EXECUTED:
            code = BAD_INPUT if row.outcome == Eviction.Outcome.INVALID else NOT_DONE
            raise CommandError(event_line(row), returncode=code)
        self.stdout.write(event_line(row))
