"""manage.py evict PLACEMENT CLUSTER: a placement leaves a cluster, unless its budget says no."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.models import Eviction, Placement
from placements.operations.placements import UnknownPlacementError
from placements.operations.rollouts.evictions import evict
from placements.queries.disruptions import said_of

NOT_DONE, BAD_INPUT = 1, 2


class Command(HubCommand):
    """Evict, and say what became of it."""

    help = "Let a placement leave a cluster; without a taint the cluster may be picked again."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("placement", metavar="PLACEMENT")
        parser.add_argument("cluster", metavar="CLUSTER")

    def handle(self, *, placement: str, cluster: str, **_options: Any) -> None:
        """Evict; 1 says that a budget did not let it go, 2 that it cannot be."""
        if not Placement.objects.filter(name=placement).exists():
            raise CommandError(str(UnknownPlacementError(placement)), returncode=BAD_INPUT)
        row = evict(placement, cluster, by=None, now=datetime.now(UTC))
        if row.outcome != Eviction.Outcome.EXECUTED:
            code = BAD_INPUT if row.outcome == Eviction.Outcome.INVALID else NOT_DONE
            raise CommandError(said_of(row), returncode=code)
        self.stdout.write(said_of(row))
