"""What the commands `apply` and `diff` share: the files with manifests, and the errors in them."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import Document, items_of, load_documents
from fleetui.management.hub_command import BAD_INPUT, HubCommand


class ManifestCommand(HubCommand):
    """A command that reads the manifests of one or more files."""

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
            "--strict", action="store_true", help="refuse policies and clusters of other systems"
        )

    def handle(self, *, filename: list[str], **options: Any) -> None:
        """Read the documents and run the command on them; invalid input ends it with exit status 2."""
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
            self.run_on(documents, **options)
        except InvalidManifest as faults:
            raise CommandError(_error_lines(", ".join(filename), faults), returncode=BAD_INPUT) from faults

    def run_on(self, documents: list[Document], **options: Any) -> None:
        """Run the command. Raise InvalidManifest."""
        raise NotImplementedError


def _error_lines(name: str, faults: InvalidManifest) -> str:
    return "\n".join(f"{name}: {fault}" for fault in faults.faults)
