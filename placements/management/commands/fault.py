"""manage.py fault NAME KIND: inject faults into a simulated cluster."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.drivers.simulated.state import DriverCall, FaultKind
from clusters.models import MemberCluster
from clusters.operations.edit import (
    UnknownClusterError,
    faults_of,
    new_fault,
    not_ready_at,
)
from fleetui.bulk import first_or_raise
from fleetui.management.hub_command import HubCommand, duration
from placements.services.rollouts.operations import inject_faults

_OPTIONS: dict[str, dict[str, Any]] = {
    "cluster": {"metavar": "NAME"},
    "fault": {
        "metavar": "KIND",
        "nargs": "?",
        "choices": list(map(str, FaultKind)),
        "help": ", ".join(FaultKind),
    },
    "--clear": {
        "action": "store_true",
        "help": "remove all faults, or those of KIND",
    },
    "--for": {
        "dest": "lasts",
        "type": duration,
        "metavar": "5m",
        "help": "duration (default: until cleared)",
    },
    "--kind": {
        "dest": "objectKind",
        "help": "kind of the affected objects (default: all)",
    },
    "--name": {
        "dest": "objectName",
        "help": "name of the affected objects (default: all)",
    },
    "--image": {
        "help": "image of the affected objects, complete or its tag (default: all)",
    },
    "--period": {
        "dest": "periodSeconds",
        "type": int,
        "help": "period of flapping in seconds",
    },
    "--call": {
        "dest": "calls",
        "action": "append",
        "choices": list(map(str, DriverCall)),
        "help": "call that times out (repeatable; default: all)",
    },
    "--after-effect": {
        "dest": "afterEffect",
        "action": "store_true",
        "help": "the call takes effect although it times out",
    },
}
_OF_FAULT = (
    "objectKind",
    "objectName",
    "image",
    "periodSeconds",
    "calls",
    "afterEffect",
)


class Command(HubCommand):
    help = (
        "Inject a fault into a simulated cluster. --clear removes all faults, or those of KIND; "
        "without KIND and --clear the active faults are listed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for flag, options in _OPTIONS.items():
            parser.add_argument(flag, **options)

    def handle(
        self, *, cluster: str, fault: str | None, clear: bool, **options: Any
    ) -> None:
        now = datetime.now(UTC)
        rows = MemberCluster.objects.filter(name=cluster)
        row = first_or_raise(rows, UnknownClusterError(cluster))
        faults = faults_of(row)
        wanted = None
        if clear:
            wanted = [one for one in faults if fault and one["kind"] != fault]
        elif fault:
            about = {name: options[name] for name in _OF_FAULT if options[name]}
            new = new_fault(fault, now=now, lasts=options["lasts"], about=about)
            wanted = [*faults, new]
        if wanted is not None:
            row = inject_faults(
                cluster, wanted, by=None, now=now, expected=row.revision
            )
            faults = faults_of(row)
        for one in faults:
            self.stdout.write(json.dumps(one))
        if not faults:
            self.stdout.write("No active faults")
        if moment := not_ready_at(row, now=now):
            self.stdout.write(
                f"Not ready from {moment:%Y-%m-%d %H:%M:%S} UTC on, if nothing changes"
            )
