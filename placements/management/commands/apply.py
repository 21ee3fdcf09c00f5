"""manage.py apply -f FILE: resources, member clusters, placements, budgets, evictions, all or none."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.manifests import Document, items_of, load_documents
from placements.operations.applying import apply_documents
from placements.operations.emptying import CONFIRMATION, EmptiesPlacementError
from placements.scheduling.faults import Faults

BAD_INPUT = 2
UNCONFIRMED = 3


class Command(HubCommand):
    """Apply the documents of files to the hub."""

    help = "Apply documents of every kind to the hub, all or none."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "-f", "--filename", action="append", required=True, metavar="FILE", help="- is stdin; repeatable"
        )

        parser.add_argument(
            "--confirm", choices=[CONFIRMATION], help="go on where a placement would leave all its clusters"
        )

    def handle(self, *, filename: list[str], confirm: str | None = None, **_options: Any) -> None:
        """Apply, and say what became of each document."""
        documents: list[Document] = []
        for name in filename:
            try:
                documents += [item for one in load_documents(_read(name)) for item in items_of(one)]
            except Faults as faults:
                raise CommandError(_told(name, faults), returncode=BAD_INPUT) from faults
        if not documents:
            message = f"{', '.join(filename)}: holds nothing to apply (allowed: one document or more)"
            raise CommandError(message, returncode=BAD_INPUT)
        try:
            results = apply_documents(
                documents, by=None, now=datetime.now(UTC), confirmed=confirm is not None
            )
        except Faults as faults:
            raise CommandError(_told(", ".join(filename), faults), returncode=BAD_INPUT) from faults
        except EmptiesPlacementError as error:
            raise CommandError(f"{error} (--confirm {CONFIRMATION})", returncode=UNCONFIRMED) from error
        for result in results:
            said = f": {result.said}" if result.said else ""
            self.stdout.write(f"{result.kind} {result.name} {result.did}{said}")
            for caveat in result.caveats:
                self.stderr.write(f"  warning: {caveat.path}: {caveat.message}")


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"{name}: cannot be read: {error.strerror}", returncode=BAD_INPUT) from error


def _told(name: str, faults: Faults) -> str:
    return "\n".join(f"{name}: {fault}" for fault in faults.faults)
