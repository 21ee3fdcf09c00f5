"""manage.py connect_hub NAME --kubeconfig FILE: connect a KubeFleet hub, after a check."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.connection_input import ConnectionInput
from clusters.hub_queries import live_hub
from clusters.kubeconfig_files import with_embedded_files
from clusters.models.hubs import HubIdentity, HubMode
from clusters.operations.connection import ConnectionCheckFailed
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.locations import assets_folder
from fleetui.management.hub_command import HubCommand
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

ROLES = ("viewer", "operator", "approver", "impersonate")
_SOURCES: dict[str, dict[str, Any]] = {
    "--kubeconfig": {"metavar": "FILE", "help": "kubeconfig; - is stdin"},
    "--in-cluster": {
        "action": "store_true",
        "help": "the hub in which this console runs, with its account",
    },
    "--rbac": {
        "choices": ROLES,
        "help": "print the manifests that prepare the hub",
    },
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "--context": {
        "default": "",
        "help": "context of the kubeconfig, if it has several",
    },
    "--check": {"action": "store_true", "help": "check only; nothing is saved"},
    "--replace": {"action": "store_true", "help": "change a hub that exists"},
    "--confirm": {
        "action": "store_true",
        "help": "save the connection although its check fails",
    },
    "name": {"metavar": "NAME", "nargs": "?", "default": ""},
    "--kind": {
        "choices": list(HUB_KINDS),
        "default": "kubefleet",
        "help": "API of the hub",
    },
    "--title": {"help": "title for pages"},
    "--mode": {
        "choices": HubMode.values,
        "help": "whether the console may write to the hub (default read)",
    },
    "--identity": {
        "choices": HubIdentity.values,
        "help": "in whose name it writes (default shared)",
    },
    "--namespace": {
        "action": "append",
        "dest": "namespaces",
        "help": "only this namespace; repeatable",
    },
}


class Command(HubCommand):
    help = "Connect a KubeFleet hub by its kubeconfig, after a check of connection and permissions."

    def add_arguments(self, parser: CommandParser) -> None:
        sources = parser.add_mutually_exclusive_group()
        for flag, options in _SOURCES.items():
            sources.add_argument(flag, **options)
        for flag, options in _OPTIONS.items():
            parser.add_argument(flag, **options)

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
        has_source = options["kubeconfig"] or options["in_cluster"]
        if options["replace"] and not options["check"] and not has_source:
            change_hub(name, chosen, by=None, now=datetime.now(UTC))
            self.stdout.write(f"Hub {name} saved")
            return
        spec = HubSpec(name)
        if options["replace"]:
            spec = spec_of(live_hub(name))
        spec = replace(spec, kind=options["kind"], **chosen)
        check_spec(spec)
        self.connect(spec, options, now=datetime.now(UTC))

    def connect(
        self, spec: HubSpec, options: Mapping[str, Any], *, now: datetime
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
            parsed = parse_hub_input(wanted, hub=None, name=spec.name, now=now)
            result = check_parsed(spec, parsed)
            self.write_result(result)
            if not result.is_passed:
                raise CommandError("The check failed", returncode=REFUSED)
            return
        try:
            saved = save_hub(
                spec,
                wanted,
                by=None,
                now=now,
                confirmed=options["confirm"],
                replaces=options["replace"],
            )
        except ConnectionCheckFailed as error:
            self.write_result(error.result)
            words = error.result.how_to_confirm
            raise CommandError(words, returncode=UNCONFIRMED) from error
        self.write_result(saved.result)
        for warning in saved.warnings:
            self.stderr.write(f"Warning: {warning}")
        self.stdout.write(f"Hub {spec.name} {'added' if saved.is_new else 'saved'}")

    def write_result(self, result: Any) -> None:
        """Write the steps and a table of the permissions."""
        for step in result.steps:
            self.stdout.write(step.line)
        if not result.permissions:
            return
        verbs = (*READ_VERBS, *WRITE_VERBS)
        width = max(len(permission.resource) for permission in result.permissions)
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
