"""What commands that connect a cluster or a hub share: where the connection comes from, and its check."""

import base64
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.connection_input import ConnectionInput
from clusters.kubeconfig import LARGEST_KUBECONFIG
from clusters.operations.connection import (
    FAILED_CHECK,
    OTHER_CLUSTER,
    CheckResult,
    ConnectionCheckFailed,
    SavedConnection,
)
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.management.hub_command import HubCommand

_MARKS = {True: "ok", False: "failed", None: "-"}
_OPTIONS = {FAILED_CHECK: "--confirm", OTHER_CLUSTER: "--other-cluster"}
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

    def connect(
        self,
        title: str,
        options: Mapping[str, Any],
        *,
        check: Callable[[ConnectionInput], CheckResult],
        save: Callable[[ConnectionInput], SavedConnection[Any]],
    ) -> None:
        """Check the connection that the options name, or save it. Raise InvalidManifest, CommandError."""
        wanted = ConnectionInput(fields={"inCluster": True})
        if options["kubeconfig"]:
            text = with_embedded_files(options["kubeconfig"])
            wanted = ConnectionInput(text, options["context"])
        elif not options["in_cluster"]:
            message = "--kubeconfig or --in-cluster is missing"
            raise CommandError(message, returncode=BAD_INPUT)
        if options["check"]:
            result = check(wanted)
            self.write_result(result)
            if not result.is_passed:
                raise CommandError("The check failed", returncode=REFUSED)
            return
        try:
            saved = save(wanted)
        except ConnectionCheckFailed as error:
            self.write_result(error.result)
            option = _OPTIONS[error.result.confirm]
            message = f"The check failed, and nothing was saved; repeat the command with {option} to save it"
            raise CommandError(message, returncode=UNCONFIRMED) from error
        self.write_result(saved.result)
        for warning in saved.warnings:
            self.stderr.write(f"Warning: {warning}")
        self.stdout.write(f"{title} {'added' if saved.is_new else 'saved'}")

    def write_result(self, result: CheckResult) -> None:
        for one in result.steps:
            hint = f" ({one.hint})" if one.hint and not one.ok else ""
            self.stdout.write(f"{_MARKS[one.ok]:7}{one.step}: {one.message}{hint}")


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
    if path == "-" or len(documents) != 1:
        return text
    embedded = _embedded(documents[0].data, Path(path).parent)
    return text if embedded == documents[0].data else dump_yaml(embedded)


def _embedded(content: Any, folder: Path) -> Any:
    if isinstance(content, list):
        return [_embedded(one, folder) for one in content]
    if not isinstance(content, dict):
        return content
    embedded = {}
    for key, value in content.items():
        if key not in _FILES or not isinstance(value, str) or not value:
            embedded[key] = _embedded(value, folder)
            continue
        path = folder / value
        try:
            read = path.read_bytes()
            text = base64.b64encode(read).decode()
            if key == "tokenFile":
                text = read.decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise CommandError(f"{path}: {reason}", returncode=BAD_INPUT) from error
        embedded[_FILES[key]] = text
    return embedded
