"""What commands that connect a cluster or a hub share: where the connection comes from, and its check."""

import base64
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.connection_input import ConnectionInput
from clusters.drivers.kubernetes.check import (
    OTHER_CLUSTER,
    CheckStep,
    ConnectionCheckFailed,
)
from clusters.kubeconfig import LARGEST_KUBECONFIG
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.management.hub_command import HubCommand

_MARKS = {True: "ok", False: "failed", None: "-"}
_FILES = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "tokenFile": "token",
}


class ConnectionCommand(HubCommand):
    """A command that connects an API server, or checks a connection to it."""

    def add_connection_arguments(self, parser: CommandParser, noun: str) -> Any:
        """Add the options of every connection; return the group of its sources."""
        source = parser.add_mutually_exclusive_group()
        source.add_argument(
            "--kubeconfig", metavar="FILE", help="kubeconfig; - is stdin"
        )
        source.add_argument(
            "--in-cluster",
            action="store_true",
            help=f"the {noun} in which this console runs, with its account",
        )
        options = {
            "check": "check only; nothing is saved",
            "replace": f"change a {noun} that exists",
            "confirm": "save the connection although its check fails",
        }
        parser.add_argument(
            "--context", default="", help="context of the kubeconfig, if it has several"
        )
        for name, words in options.items():
            parser.add_argument(f"--{name}", action="store_true", help=words)
        return source

    def entered(self, options: Mapping[str, Any]) -> ConnectionInput:
        """Return the connection that the options name. Raise InvalidManifest, CommandError."""
        if options["kubeconfig"]:
            text = with_embedded_files(options["kubeconfig"])
            return ConnectionInput(text, options["context"])
        if not options["in_cluster"]:
            message = "--kubeconfig or --in-cluster is missing"
            raise CommandError(message, returncode=BAD_INPUT)
        return ConnectionInput(fields={"inCluster": True})

    def write_steps(self, steps: Iterable[CheckStep]) -> None:
        for one in steps:
            hint = f" ({one.hint})" if one.hint and not one.ok else ""
            self.stdout.write(f"{_MARKS[one.ok]:7}{one.step}: {one.message}{hint}")

    def end_check(self, *, is_passed: bool) -> None:
        if not is_passed:
            raise CommandError("The check failed", returncode=REFUSED)

    def not_saved(self, error: ConnectionCheckFailed) -> CommandError:
        option = "--other-cluster" if error.confirm == OTHER_CLUSTER else "--confirm"
        message = f"The check failed, and nothing was saved; repeat the command with {option} to save it"
        return CommandError(message, returncode=UNCONFIRMED)


def read_kubeconfig(path: str) -> str:
    """Return the text of a kubeconfig, or more of it than is accepted. Raise CommandError."""
    try:
        if path == "-":
            return sys.stdin.read(LARGEST_KUBECONFIG + 1)
        with Path(path).open(encoding="utf-8") as file:
            return file.read(LARGEST_KUBECONFIG + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise CommandError(f"{path}: {reason}", returncode=BAD_INPUT) from error


def with_embedded_files(path: str) -> str:
    """Return a kubeconfig with the content of the files that it names: the caller has them already.

    Raise InvalidManifest, CommandError.
    """
    text = read_kubeconfig(path)
    documents = load_documents(text, max_bytes=LARGEST_KUBECONFIG)
    document = documents[0].data if len(documents) == 1 else None
    if not isinstance(document, dict) or path == "-":
        return text
    is_changed = False
    for plural, kind in (("clusters", "cluster"), ("users", "user")):
        entries: Any = document.get(plural)
        for entry in entries if isinstance(entries, list) else ():
            content = entry.get(kind) if isinstance(entry, dict) else None
            if isinstance(content, dict) and embed_files(content, Path(path).parent):
                is_changed = True
    return dump_yaml(document) if is_changed else text


def embed_files(content: dict[str, Any], folder: Path) -> Sequence[str]:
    """Replace the paths of an entry by what the files contain; return the keys of the paths."""
    keys = [key for key in _FILES if isinstance(content.get(key), str) and content[key]]
    for key in keys:
        path = folder / content.pop(key)
        try:
            read = path.read_bytes()
            value = base64.b64encode(read).decode()
            if key == "tokenFile":
                value = read.decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise CommandError(f"{path}: {reason}", returncode=BAD_INPUT) from error
        content[_FILES[key]] = value
    return keys
