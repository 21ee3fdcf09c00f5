"""manage.py drain NAME: start, show or cancel the drain of a cluster."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.models import MemberCluster
from clusters.operations.edit import UnknownClusterError
from fleetui.management.hub_command import HubCommand, duration
from placements.services.actions import ACTIONS, ActionKind
from placements.services.disruption.drains import AT_ONCE, Pace
from placements.services.disruption.preview import drain_impact
from placements.services.disruption.queries import latest_drain, step_sentence


class Command(HubCommand):
    """Start, show or cancel a drain."""

    help = "Cordon a cluster and evict its placements. A worker performs the evictions."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("cluster", metavar="NAME")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--cancel", action="store_true", help="stop evicting; the cordon stays"
        )
        what.add_argument(
            "--status", action="store_true", help="show the progress or the impact"
        )
        add(
            "--at-once",
            type=int,
            metavar="N",
            help=f"max concurrent evictions (default: {AT_ONCE})",
        )
        add(
            "--deadline",
            type=duration,
            metavar="1h30m",
            help="deadline: the drain stops after this time (default: none)",
        )
        add(
            "--first",
            action="append",
            metavar="PLACEMENT",
            help="evicted first (repeatable)",
        )

    def handle(
        self, *, cluster: str, cancel: bool, status: bool, **options: Any
    ) -> None:
        now = datetime.now(UTC)
        if (
            latest_drain(cluster) is None
            and not MemberCluster.objects.filter(name=cluster).exists()
        ):
            raise UnknownClusterError(cluster)
        if cancel:
            ACTIONS[ActionKind.CLUSTER, "cancel-drain"].run(cluster, by=None, now=now)
        elif not status:
            within, first = options["deadline"], options["first"]
            deadline = None if within is None else now + within
            pace = Pace(
                options["at_once"], first=first and tuple(first), deadline=deadline
            )
            ACTIONS[ActionKind.CLUSTER, "drain"].run(
                cluster, by=None, now=now, pace=pace
            )
        row = latest_drain(cluster)
        if row is None or not row.steps.exists():
            for one in drain_impact(cluster, now=now).rows:
                self.stdout.write(f"{one.placement}: {one.message}")
        if row is None:
            self.stdout.write(f"{cluster}: no drain")
            return
        for step in row.steps.order_by("placement_name"):
            self.stdout.write(f"{step.placement_name}: {step_sentence(step)}")
        self.stdout.write(f"{row}{f', {row.ended_reason}' if row.ended_reason else ''}")
