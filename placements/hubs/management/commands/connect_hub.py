"""manage.py connect_hub NAME --kubeconfig FILE: connect a KubeFleet hub, after a check."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.hub_queries import live_hub
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.errors import BAD_INPUT
from fleetui.locations import assets_folder
from placements.hubs.connections.discovery import READ_VERBS, WRITE_VERBS
from placements.hubs.connections.operations import (
    HubSpec,
    change_hub,
    check_parsed,
    check_spec,
    parse_hub_input,
    save_hub,
    spec_of,
)
from placements.hubs.kinds import HUB_KINDS
from placements.management.connection_command import ConnectionCommand

ROLES = ("viewer", "operator", "approver", "impersonate")


class Command(ConnectionCommand):
    """Connect a live hub, check a connection, or print the manifests that prepare a hub."""

    help = "Connect a KubeFleet hub by its kubeconfig, after a check of connection and permissions."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", nargs="?", default="")
        self.add_connection_arguments(parser, "hub").add_argument(
            "--rbac", choices=ROLES, help="print the manifests that prepare the hub"
        )
        add(
            "--kind",
            choices=list(HUB_KINDS),
            default="kubefleet",
            help="API of the hub",
        )
        add("--title", help="title for pages")
        add(
            "--mode",
            choices=HubMode.values,
            help="whether the console may write to the hub (default read)",
        )
        add(
            "--identity",
            choices=HubIdentity.values,
            help="in whose name it writes (default shared)",
        )
        add(
            "--namespace",
            action="append",
            dest="namespaces",
            help="only this namespace; repeatable",
        )

    def handle(self, *, name: str, **options: Any) -> None:
        """Check the connection and save the hub; exit status 3 if the check fails without --confirm."""
        if options["rbac"]:
            path = assets_folder() / "docs" / "hubs" / f"{options['rbac']}.yaml"
            self.stdout.write(path.read_text(encoding="utf-8"), ending="")
            return
        if not name:
            raise CommandError("NAME is missing", returncode=BAD_INPUT)
        if options["namespaces"] is not None:
            options["namespaces"] = tuple(options["namespaces"])
        chosen = {
            key: options[key]
            for key in ("title", "mode", "identity", "namespaces")
            if options[key] is not None
        }
        now = datetime.now(UTC)
        has_source = options["kubeconfig"] or options["in_cluster"]
        if options["replace"] and not options["check"] and not has_source:
            change_hub(name, chosen, by=None, now=now)
            self.stdout.write(f"Hub {name} saved")
            return
        spec = HubSpec(name)
        if options["replace"]:
            spec = spec_of(live_hub(name))
        spec = replace(spec, kind=options["kind"], **chosen)
        check_spec(spec)
        self.connect(
            f"Hub {name}",
            options,
            check=lambda wanted: check_parsed(
                spec, parse_hub_input(wanted, hub=None, name=name, now=now)
            ),
            save=lambda wanted: save_hub(
                spec,
                wanted,
                by=None,
                now=now,
                confirmed=options["confirm"],
                replaces=options["replace"],
            ),
        )

    def write_result(self, result: Any) -> None:
        """Write the steps and a table of the permissions."""
        super().write_result(result)
        if not result.permissions:
            return
        verbs = (*READ_VERBS, *WRITE_VERBS)
        width = max(len(one.resource) for one in result.permissions)
        self.stdout.write(f"{'':{width}}  " + "  ".join(verbs))
        for kind in result.permissions:
            cells = (
                {True: "yes", False: "no", None: "?"}[kind.verbs.get(verb)]
                for verb in verbs
            )
            row = "  ".join(
                f"{cell:{len(verb)}}" for cell, verb in zip(cells, verbs, strict=True)
            )
            self.stdout.write(f"{kind.resource:{width}}  {row}".rstrip())
