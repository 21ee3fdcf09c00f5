"""manage.py fault NAME KIND: a simulated cluster fails, for a rehearsal."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.drivers.simulated.configuration import Call, FaultKind
from clusters.models import MemberCluster
from clusters.operations.editing import UnknownClusterError
from clusters.operations.faults import NotSimulatedError, faults_of, new_fault, set_faults
from fleetui.management.hub_command import HubCommand
from fleetui.revisions import StaleEditError
from placements.scheduling.faults import Faults

BAD_INPUT = 2
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Command(HubCommand):
    """Add a fault to a simulated cluster, take all away, or list them."""

    help = (
        "Tell a simulated cluster to fail. A fault is added to those that are there; --clear takes all away, "
        "with a kind those of that kind. Without either they are listed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("cluster", metavar="NAME")
        parser.add_argument(
            "fault", metavar="KIND", nargs="?", choices=list(map(str, FaultKind)), help=_listing()
        )
        parser.add_argument("--clear", action="store_true", help="take faults away")
        parser.add_argument("--for", dest="lasts", metavar="5m", help="how long; by default for ever")
        parser.add_argument("--kind", dest="objectKind", help="of the objects concerned")
        parser.add_argument("--name", dest="objectName", help="of the objects concerned")
        parser.add_argument("--image", help="of the objects concerned, whole or only its tag")
        parser.add_argument("--period", dest="periodSeconds", type=int, help="seconds of a flap")
        parser.add_argument(
            "--call", dest="calls", action="append", choices=list(map(str, Call)), help="that times out"
        )
        parser.add_argument(
            "--after-effect", dest="afterEffect", action="store_true", help="the call worked all the same"
        )

    def handle(self, *, cluster: str, fault: str | None, clear: bool, **options: Any) -> None:
        """Change the faults where that is asked for, and list those that there are then."""
        now = datetime.now(UTC)
        try:
            row = _cluster_named(cluster)
            if fault or clear:
                wanted = _without(fault, row) if clear else _with(fault or "", options, row, now)
                row = set_faults(cluster, wanted, by=None, now=now, expected=row.revision)
            found = faults_of(row)
        except (UnknownClusterError, NotSimulatedError, StaleEditError, Faults) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        for one in found:
            self.stdout.write(json.dumps(one))
        if not found:
            self.stdout.write("no faults")


def _listing() -> str:
    return ", ".join(FaultKind)


def _cluster_named(name: str) -> MemberCluster:
    row = MemberCluster.objects.filter(name=name).first()
    if row is None:
        raise UnknownClusterError(name)
    return row


def _without(kind: str | None, row: MemberCluster) -> list[dict[str, Any]]:
    return [one for one in faults_of(row) if kind and one["kind"] != kind]


def _with(kind: str, options: dict[str, Any], row: MemberCluster, now: datetime) -> list[dict[str, Any]]:
    return [*faults_of(row), _fault(kind, options, now)]


def _fault(kind: str, options: dict[str, Any], now: datetime) -> dict[str, Any]:
    asked = ("objectKind", "objectName", "image", "periodSeconds", "calls", "afterEffect")
    given = {name: options[name] for name in asked if options[name]}
    lasts = _duration(options["lasts"]) if options["lasts"] else None
    return new_fault(kind, now=now, lasts=lasts, about=given)


def _duration(written: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", written)
    if not found:
        message = f"--for {written}: is no duration (allowed: a whole number and s, m, h or d, such as 5m)"
        raise CommandError(message, returncode=BAD_INPUT)
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
