"""manage.py apply -f FILE: resources, member clusters, placements, budgets, evictions, all or none."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import Document, items_of, load_documents
from fleetui.management.hub_command import BAD_INPUT, UNCONFIRMED, HubCommand
from placements.services.apply import apply_documents
from placements.services.placements import CONFIRMATION, UnschedulesEverything


class Command(HubCommand):
    """Apply manifests to the hub."""

    help = "Apply manifests of all supported kinds to the hub, all or none."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-f",
            "--filename",
            action="append",
            required=True,
            metavar="FILE",
            help="file with manifests, - for stdin (repeatable)",
        )

        parser.add_argument(
            "--confirm",
            choices=[CONFIRMATION],
            help="continue even if a placement would be removed from all clusters",
        )
        parser.add_argument(
            "--strict", action="store_true", help="refuse policies and clusters of other systems"
        )

    def handle(
        self, *, filename: list[str], confirm: str | None = None, strict: bool = False, **_options: Any
    ) -> None:
        """Apply the documents and print the result of each."""
        documents: list[Document] = []
        for name in filename:
            try:
                content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
                documents += [item for one in load_documents(content) for item in items_of(one)]
            except OSError as error:
                message = f"{name}: cannot read file: {error.strerror}"
                raise CommandError(message, returncode=BAD_INPUT) from error
            except InvalidManifest as faults:
                raise CommandError(_error_lines(name, faults), returncode=BAD_INPUT) from faults
        if not documents:
            raise CommandError(f"{', '.join(filename)}: Empty manifest", returncode=BAD_INPUT)
        try:
            results = apply_documents(
                documents, by=None, now=datetime.now(UTC), confirmed=confirm is not None, strict=strict
            )
        except InvalidManifest as faults:
            raise CommandError(_error_lines(", ".join(filename), faults), returncode=BAD_INPUT) from faults
        except UnschedulesEverything as error:
            raise CommandError(f"{error} (--confirm {CONFIRMATION})", returncode=UNCONFIRMED) from error
        for result in results:
            detail = f": {result.said}" if result.said else ""
            self.stdout.write(f"{result.kind} {result.name} {result.did}{detail}")
            for caveat in result.caveats:
                self.stderr.write(f"  warning: {caveat.path}: {caveat.message}")


def _error_lines(name: str, faults: InvalidManifest) -> str:
    return "\n".join(f"{name}: {fault}" for fault in faults.faults)
