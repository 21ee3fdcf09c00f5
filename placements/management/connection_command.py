"""What commands that connect a cluster or a hub share: where the connection comes from, and its check."""

from collections.abc import Callable, Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.connection_input import ConnectionInput
from clusters.kubeconfig_files import with_embedded_files
from clusters.operations.connection import (
    FAILED_CHECK,
    OTHER_CLUSTER,
    CheckResult,
    ConnectionCheckFailed,
    SavedConnection,
)
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.management.hub_command import HubCommand

_MARKS = {True: "ok", False: "failed", None: "-"}
_OPTIONS = {FAILED_CHECK: "--confirm", OTHER_CLUSTER: "--other-cluster"}


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
            wanted = ConnectionInput(
                with_embedded_files(options["kubeconfig"]), options["context"]
            )
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
