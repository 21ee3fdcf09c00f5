"""manage.py import_clusters FILE: add or change member clusters from a file of any known kind."""

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.drivers.base import KUBERNETES
from clusters.drivers.registry import DRIVERS
from clusters.importing import ImportChoices
from clusters.operations.importing import (
    ImportCheckFailed,
    import_members,
    preview_import,
)
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.errors import BAD_INPUT, UNCONFIRMED
from fleetui.management.hub_command import HubCommand
from placements.services.cluster_imports import read_import
from placements.services.filters import kinds_for


class Command(HubCommand):
    """Import member clusters, all or none."""

    help = (
        "Import member clusters, all or none: MemberClusters, clusters of Open Cluster Management (with their "
        "sets, bindings and AddOnPlacementScores), Karmada, "
        "SIG Multicluster or Cluster API, plain objects (YAML, JSON), a table (CSV), or the contexts of a kubeconfig. "
        "Exit status: 0 imported, 2 invalid input, 3 the check of a connection failed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("file", metavar="FILE", help="file with clusters, - for stdin")
        add(
            "--driver",
            choices=sorted(set(DRIVERS) - {KUBERNETES}),
            help="monitor the clusters with this driver (default: none)",
        )
        add(
            "--context",
            action="append",
            default=[],
            metavar="NAME",
            help="only this context of a kubeconfig (repeatable; default: all)",
        )
        add(
            "--rename",
            action="append",
            default=[],
            metavar="OLD=NEW",
            help="import a cluster under another name; without NEW it is left out (repeatable)",
        )
        add(
            "--confirm",
            action="store_true",
            help="save connections although their check fails",
        )
        add(
            "--dry-run",
            action="store_true",
            help="check everything and show results; write nothing",
        )

    def handle(self, *, file: str, **options: Any) -> None:
        try:
            source = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        except OSError as error:
            message = f"{file}: cannot read file: {error.strerror}"
            raise CommandError(message, returncode=BAD_INPUT) from error
        try:
            choices = ImportChoices.of(options["context"], options["rename"])
            found = read_import(source, name=file, choices=choices)
            now = datetime.now(UTC)
            suffix = ""
            if options["dry_run"]:
                suffix = " (dry run)"
                outcome = preview_import(found, kinds_of=kinds_for, by=None, now=now)
            else:
                outcome = import_members(
                    found,
                    driver=options["driver"],
                    confirmed=options["confirm"],
                    kinds_of=kinds_for,
                    by=None,
                    now=now,
                )
        except InvalidManifest as invalid:
            text = "\n".join(f"{file}: {one}" for one in invalid.errors)
            raise CommandError(text, returncode=BAD_INPUT) from invalid
        except ImportCheckFailed as error:
            message = f"Nothing was imported: {error}; --confirm imports all the same"
            raise CommandError(message, returncode=UNCONFIRMED) from error
        for note in found.notes:
            self.stderr.write(f"note: {note}")
        results = [*outcome.clusters, *outcome.objects]
        for one in results:
            detail = f": {one.detail}" if one.detail else ""
            self.stdout.write(f"{one.name}: {one.result}{suffix}{detail}")
        counts = Counter(one.result for one in results)
        self.stdout.write(
            ", ".join(f"{count} {did}" for did, count in sorted(counts.items()))
            or "no clusters"
        )
