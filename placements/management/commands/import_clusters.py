"""manage.py import_clusters FILE: add or change member clusters from YAML, JSON or CSV."""

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.drivers.base import KUBERNETES
from clusters.drivers.registry import DRIVERS
from clusters.importing import read_members
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand


class Command(HubCommand):
    """Import member clusters, all or none."""

    help = (
        "Import member clusters from YAML (as printed by `kubectl get memberclusters -o yaml`), JSON or CSV, "
        "all or none."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", help="file with clusters, - for stdin"
        )
        parser.add_argument(
            "--driver",
            choices=sorted(set(DRIVERS) - {KUBERNETES}),
            help="monitor the clusters with this driver (default: none)",
        )

    def handle(self, *, file: str, driver: str | None, **_options: Any) -> None:
        try:
            source = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            message = f"{file}: cannot read file: {error.strerror}"
            raise CommandError(message, returncode=BAD_INPUT) from error
        try:
            found = read_members(source, name=file)
            specs = [ClusterSpec(one.document, driver=driver) for one in found.members]
            results = upsert_clusters(specs, by=None, now=datetime.now(UTC))
        except InvalidManifest as invalid:
            lines = "\n".join(f"{file}: {one}" for one in invalid.errors)
            raise CommandError(lines, returncode=BAD_INPUT) from invalid
        for note in found.notes:
            self.stderr.write(f"note: {note}")
        for one in results:
            self.stdout.write(f"{one.name}: {one.result}")
        counts = Counter(one.result for one in results)
        self.stdout.write(
            ", ".join(f"{count} {did}" for did, count in sorted(counts.items()))
            or "no clusters"
        )
