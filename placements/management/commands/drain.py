"""manage.py drain NAME: cordon a cluster and evict what is on it; or see how far that is, or cancel it."""

from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.models import MemberCluster
from clusters.operations.editing import UnknownClusterError
from fleetui.management.hub_command import HubCommand
from placements.operations.rollouts.draining import AT_ONCE, Pace, cancel_drain, drain
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.disruptions import latest_drain, step_sentence
from placements.queries.drain_impact import drain_impact
from placements.scheduling.door.durations import parse_duration
from placements.scheduling.faults import Faults

BAD_INPUT = 2


class Command(HubCommand):
    """Begin, watch or cancel a drain."""

    help = "Cordon a cluster and evict one placement after another; a worker carries it out."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("cluster", metavar="NAME")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--cancel", action="store_true", help="evict nothing more; the cordon stays")
        what.add_argument("--status", action="store_true", help="only say how far it is, or what it would do")
        parser.add_argument("--at-once", type=int, metavar="N", help=f"evictions at a time ({AT_ONCE})")
        parser.add_argument(
            "--deadline", type=_duration, metavar="1h30m", help="end by then, whatever is left"
        )
        parser.add_argument(
            "--first", action="append", metavar="PLACEMENT", help="goes before the others; repeatable"
        )

    def handle(self, *, cluster: str, cancel: bool, status: bool, **options: Any) -> None:
        """Do what was asked, then say how far the drain is."""
        now = datetime.now(UTC)
        try:
            _refuse_unknown(cluster)
            if cancel:
                cancel_drain(cluster, by=None, now=now)
            elif not status:
                drain(cluster, by=None, now=now, pace=_pace(options, now))
        except (UnknownClusterError, HandRefusedError, Faults) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        self._say(cluster, now)

    def _say(self, cluster: str, now: datetime) -> None:
        row = latest_drain(cluster)
        if row is None or not row.steps.exists():
            for one in drain_impact(cluster, now=now).rows:
                self.stdout.write(f"{one.placement}: {one.said}")
        if row is None:
            self.stdout.write(f"{cluster} was never drained")
            return
        for step in row.steps.order_by("placement_name"):
            self.stdout.write(f"{step.placement_name}: {step_sentence(step)}")
        self.stdout.write(f"{row}{f', {row.ended_because}' if row.ended_because else ''}")


def _refuse_unknown(cluster: str) -> None:
    """Raise UnknownClusterError for a name that no cluster has, nor had when it was drained."""
    if latest_drain(cluster) is None and not MemberCluster.objects.filter(name=cluster).exists():
        raise UnknownClusterError(cluster)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _pace(options: dict[str, Any], now: datetime) -> Pace:
    within, first = options["deadline"], options["first"]
    return Pace(
        options["at_once"], first=first and tuple(first), deadline=None if within is None else now + within
    )
