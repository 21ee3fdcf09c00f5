"""manage.py join NAME --kubeconfig FILE: add a Kubernetes cluster to the fleet by its kubeconfig."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.models import MemberCluster
from clusters.operations.connection import (
    Kinds,
    check_connection,
    new_member,
    parse_input,
    set_connection,
)
from fleetui.apimachinery.errors import InvalidManifest
from placements.management.connection_command import ConnectionCommand
from placements.services.filters import kinds_for, kinds_on
from placements.services.fleet.forms import read_cluster


class Command(ConnectionCommand):
    """Add a Kubernetes cluster to the fleet, or set the connection of one."""

    help = "Add a Kubernetes cluster to the fleet by its kubeconfig, after a check of the connection."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME")
        self.add_connection_arguments(parser, "cluster")
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
            "--other-cluster",
            action="store_true",
            help="the member has another cluster than before, or the cluster had another name",
        )

    def handle(self, *, name: str, **options: Any) -> None:
        """Check the connection and save it; exit status 3 if the check fails and --confirm is missing."""
        now = datetime.now(UTC)
        typed = read_cluster("\n".join(options["label"]), "\n".join(options["taint"]))
        if typed.errors:
            raise InvalidManifest(typed.errors)
        joins = not options["replace"]
        kinds: Kinds = kinds_on(name)
        if joins:
            kinds = kinds_for(new_member(name, typed.labels, typed.taints))
        cluster = MemberCluster.objects.filter(name=name).first()
        self.connect(
            f"Member cluster {name}",
            options,
            check=lambda wanted: check_connection(
                parse_input(wanted, cluster=cluster, now=now),
                name=name,
                kinds=kinds,
                is_new=joins,
            ),
            save=lambda wanted: set_connection(
                name,
                wanted,
                by=None,
                now=now,
                confirmed=options["confirm"] or options["other_cluster"],
                other_cluster=options["other_cluster"],
                joins=joins,
                kinds=kinds,
                labels=typed.labels,
                taints=typed.taints,
            ),
        )
