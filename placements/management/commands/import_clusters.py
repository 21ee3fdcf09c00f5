"""manage.py import_clusters FILE: member clusters from YAML, JSON or CSV join the fleet, or are changed."""

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.drivers.registry import DRIVERS
from clusters.operations.joining import Wanted, put_clusters
from fleetui.management.hub_command import HubCommand
from placements.imports import read_members
from placements.scheduling.faults import Faults

BAD_INPUT = 2


class Command(HubCommand):
    """Import member clusters, all or none."""

    help = (
        "Import member clusters: what `kubectl get memberclusters -o yaml` prints, JSON, or CSV. "
        "All or none; what is in the fleet already and the same is left alone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("file", metavar="FILE", help="- is stdin")
        parser.add_argument(
            "--driver", choices=sorted(DRIVERS), help="watch them with this driver; by default nobody does"
        )

    def handle(self, *, file: str, driver: str | None, **_options: Any) -> None:
        """Import, and say what became of each cluster."""
        try:
            source = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            message = f"{file}: cannot be read: {error.strerror}"
            raise CommandError(message, returncode=BAD_INPUT) from error
        try:
            read = read_members(source, name=file)
            wanted = [Wanted(one.document, driver=driver) for one in read]
            done = put_clusters(wanted, by=None, now=datetime.now(UTC))
        except Faults as faults:
            told = "\n".join(f"{file}: {fault}" for fault in faults.faults)
            raise CommandError(told, returncode=BAD_INPUT) from faults
        for one in done:
            self.stdout.write(f"{one.name}: {one.did}")
        counts = Counter(one.did for one in done)
        self.stdout.write(", ".join(f"{count} {did}" for did, count in sorted(counts.items())) or "nothing")
