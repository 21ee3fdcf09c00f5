"""What the commands `apply` and `diff` share: the files with manifests, and the errors in them."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import Document, items_of, load_documents
from fleetui.errors import BAD_INPUT
from fleetui.management.server_command import ServerCommand
from fleetui.remote import RemoteClient, RemoteErrors

_DIVIDER = "---\n"
_FAULT_KEYS = ("path", "code", "message", "allowed")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    name: str
    text: str
    documents: list[Document]


class ManifestCommand(ServerCommand):
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
            "--strict",
            action="store_true",
            help="refuse policies and clusters of other systems",
        )
        super().add_arguments(parser)

    def handle(
        self, *, filename: list[str], client: RemoteClient | None = None, **options: Any
    ) -> None:
        """Read the documents and run the command on them; invalid input ends it with exit status 2."""
        files = [_read_file(name) for name in filename]
        documents = [one for file in files for one in file.documents]
        if not documents:
            raise CommandError(
                f"{', '.join(filename)}: Empty manifest", returncode=BAD_INPUT
            )
        try:
            if client is None:
                self.run_on(documents, **options)
            else:
                self.run_remotely(client, joined(files), **options)
        except InvalidManifest as invalid:
            raise CommandError(
                _error_lines(", ".join(filename), invalid), returncode=BAD_INPUT
            ) from invalid
        except RemoteErrors as invalid:
            lines = [error_line(files, error) for error in invalid.errors]
            raise CommandError("\n".join(lines), returncode=BAD_INPUT) from invalid

    def run_on(self, documents: list[Document], **options: Any) -> None:
        """Run the command on the database. Raise InvalidManifest."""
        raise NotImplementedError

    def run_remotely(
        self, client: RemoteClient, manifests: bytes, **options: Any
    ) -> None:
        """Run the command on a console over REST. Raise RemoteError."""
        raise NotImplementedError


def _read_file(name: str) -> ManifestFile:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        documents = [item for one in load_documents(content) for item in items_of(one)]
    except OSError as error:
        message = f"{name}: cannot read file: {error.strerror}"
        raise CommandError(message, returncode=BAD_INPUT) from error
    except InvalidManifest as invalid:
        raise CommandError(
            _error_lines(name, invalid), returncode=BAD_INPUT
        ) from invalid
    text = content.decode("utf-8-sig")  # it was just read as such
    return ManifestFile(name, text if text.endswith("\n") else f"{text}\n", documents)


def joined(files: Sequence[ManifestFile]) -> bytes:
    """Return all files as one YAML text."""
    return _DIVIDER.join(file.text for file in files).encode()


def error_line(files: Sequence[ManifestFile], error: Mapping[str, Any]) -> str:
    """Return an error of a console with the file, and the line there: the console knows one text."""
    line, name = error.get("line"), ", ".join(file.name for file in files)
    if isinstance(line, int):
        for file in files:
            length = file.text.count("\n")
            if line <= length or file is files[-1]:
                name = file.name
                break
            line -= length + 1
    path, code, message, allowed = (str(error.get(key) or "") for key in _FAULT_KEYS)
    return f"{name}: {FieldError(path, code, message, allowed, line)}"


def _error_lines(name: str, errors: InvalidManifest) -> str:
    return "\n".join(f"{name}: {error}" for error in errors.errors)
