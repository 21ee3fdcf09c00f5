"""manage.py join NAME --kubeconfig FILE: add a Kubernetes cluster to the fleet by its kubeconfig."""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.drivers.kubernetes.check import OTHER_CLUSTER, CheckStep
from clusters.kubeconfig import LARGEST_KUBECONFIG
from clusters.operations.connection import (
    ConnectionCheckFailed,
    ConnectionInput,
    new_member,
    set_connection,
)
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.errors import BAD_INPUT, UNCONFIRMED
from fleetui.management.hub_command import HubCommand
from placements.services.filters import kinds_for, kinds_on
from placements.services.fleet.forms import read_cluster

_MARKS = {True: "ok", False: "failed", None: "-"}


class Command(HubCommand):
    """Add a Kubernetes cluster to the fleet, or set the connection of one."""

    help = "Add a Kubernetes cluster to the fleet by its kubeconfig, after a check of the connection."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            "--kubeconfig", metavar="FILE", help="kubeconfig; - is stdin"
        )
        source.add_argument(
            "--in-cluster",
            action="store_true",
            help="the cluster in which this console runs, with its account",
        )
        add(
            "--context",
            default="",
            help="context of the kubeconfig (default: its current one)",
        )
        add(
            "--label",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="label of a new cluster",
        )
        add(
            "--taint",
            action="append",
            default=[],
            metavar="KEY[=VALUE][:EFFECT]",
            help="taint of a new cluster (default effect: NoSchedule)",
        )
        add(
            "--replace",
            action="store_true",
            help="set the connection of a cluster that is in the fleet",
        )
        add(
            "--confirm",
            action="store_true",
            help="save the connection although its check fails",
        )
        add(
            "--other-cluster",
            action="store_true",
            help="the member has another cluster than before, or the cluster had another name",
        )

    def handle(self, *, name: str, kubeconfig: str | None, **options: Any) -> None:
        """Check the connection and save it; exit status 3 if the check fails and --confirm is missing."""
        fields = {"inCluster": True} if options["in_cluster"] else {}
        text = read_kubeconfig(kubeconfig) if kubeconfig else ""
        typed = read_cluster("\n".join(options["label"]), "\n".join(options["taint"]))
        if typed.errors:
            raise InvalidManifest(typed.errors)
        joins = not options["replace"]
        kinds = (
            kinds_for(new_member(name, typed.labels, typed.taints))
            if joins
            else kinds_on(name)
        )
        try:
            result = set_connection(
                name,
                ConnectionInput(text, options["context"], fields),
                by=None,
                now=datetime.now(UTC),
                confirmed=options["confirm"] or options["other_cluster"],
                other_cluster=options["other_cluster"],
                joins=joins,
                kinds=kinds,
                labels=typed.labels,
                taints=typed.taints,
            )
        except ConnectionCheckFailed as error:
            self.stdout.write(step_lines(error.steps))
            option = (
                "--other-cluster" if error.confirm == OTHER_CLUSTER else "--confirm"
            )
            message = f"The check failed, and nothing was saved; repeat the command with {option} to save it"
            raise CommandError(message, returncode=UNCONFIRMED) from error
        self.stdout.write(step_lines(result.steps))
        for warning in result.warnings:
            self.stderr.write(f"Warning: {warning}")
        self.stdout.write(
            f"Member cluster {name} {'added' if result.is_new else 'saved'}"
        )


def step_lines(steps: Iterable[CheckStep]) -> str:
    lines = []
    for one in steps:
        hint = f" ({one.hint})" if one.hint and not one.ok else ""
        lines.append(f"{_MARKS[one.ok]:7}{one.step}: {one.message}{hint}")
    return "\n".join(lines)


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
