"""manage.py connect_hub NAME --kubeconfig FILE: connect a KubeFleet hub, after a check."""

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.connection_input import ConnectionInput
from clusters.hub_queries import live_hub
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.errors import BAD_INPUT, REFUSED
from fleetui.locations import assets_folder
from fleetui.management.hub_command import HubCommand
from placements.hubs.connections.check import HubCheckReport
from placements.hubs.connections.discovery import READ_VERBS, WRITE_VERBS
from placements.hubs.connections.operations import (
    HubCheckFailed,
    HubSpec,
    change_hub,
    check_parsed,
    check_spec,
    parse_hub_input,
    save_hub,
    spec_of,
)
from placements.hubs.kinds import HUB_KINDS
from placements.management.commands.join import read_kubeconfig, step_lines

ROLES = ("viewer", "operator", "approver", "impersonate")
_CHANGEABLE = ("title", "mode", "identity", "namespaces")
_FILES = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
}


class Command(HubCommand):
    """Connect a live hub, check a connection, or print the manifests that prepare a hub."""

    help = "Connect a KubeFleet hub by its kubeconfig, after a check of connection and permissions."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("name", metavar="NAME", nargs="?", default="")
        source = parser.add_mutually_exclusive_group()
        source.add_argument(
            "--kubeconfig", metavar="FILE", help="kubeconfig; - is stdin"
        )
        source.add_argument(
            "--in-cluster",
            action="store_true",
            help="the hub in which this console runs",
        )
        source.add_argument(
            "--rbac", choices=ROLES, help="print the manifests that prepare the hub"
        )
        add(
            "--context", default="", help="context of the kubeconfig, if it has several"
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
        add("--check", action="store_true", help="check only; nothing is saved")
        add(
            "--replace",
            action="store_true",
            help="change a hub that exists; what is not given stays",
        )
        add(
            "--anyway",
            action="store_true",
            help="save the hub although the check fails",
        )

    def handle(self, *, name: str, **options: Any) -> None:
        """Check the connection and save the hub; exit status 1 if the check fails."""
        if options["rbac"]:
            path = assets_folder() / "docs" / "hubs" / f"{options['rbac']}.yaml"
            self.stdout.write(path.read_text(encoding="utf-8"), ending="")
            return
        if not name:
            raise CommandError("NAME is missing", returncode=BAD_INPUT)
        chosen = {key: options[key] for key in _CHANGEABLE if options[key] is not None}
        now = datetime.now(UTC)
        if not options["kubeconfig"] and not options["in_cluster"]:
            if not options["replace"] or options["check"]:
                raise CommandError(
                    "--kubeconfig or --in-cluster is missing", returncode=BAD_INPUT
                )
            change_hub(name, chosen, by=None, now=now)
            self.stdout.write(f"Hub {name} saved")
            return
        spec = replace(
            spec_of(live_hub(name)) if options["replace"] else HubSpec(name),
            kind=options["kind"],
        )
        spec = replace(
            spec,
            **{
                **chosen,
                "namespaces": tuple(chosen.get("namespaces", spec.namespaces)),
            },
        )
        check_spec(spec)
        fields = {"inCluster": True} if options["in_cluster"] else {}
        text = (
            with_embedded_files(options["kubeconfig"]) if options["kubeconfig"] else ""
        )
        connection = ConnectionInput(text, options["context"], fields)
        if options["check"]:
            report = check_parsed(
                spec, parse_hub_input(connection, hub=None, name=name, now=now)
            )
            self.write_report(report)
            if not report.is_passed:
                raise CommandError("The check failed", returncode=REFUSED)
            return
        try:
            result = save_hub(
                spec,
                connection,
                by=None,
                now=now,
                confirmed=options["anyway"],
                replaces=options["replace"],
            )
        except HubCheckFailed as error:
            self.write_report(error.report)
            message = "The check failed, and nothing was saved; repeat the command with --anyway to save it"
            raise CommandError(message, returncode=REFUSED) from error
        if result.report:
            self.write_report(result.report)
        self.stdout.write(f"Hub {name} {'added' if result.is_new else 'saved'}")

    def write_report(self, report: HubCheckReport) -> None:
        self.stdout.write(step_lines(report.steps))
        if not report.permissions:
            return
        verbs = (*READ_VERBS, *WRITE_VERBS)
        width = max(len(one.resource) for one in report.permissions)
        self.stdout.write(f"{'':{width}}  " + "  ".join(verbs))
        for kind in report.permissions:
            cells = (
                {True: "yes", False: "no", None: "?"}[kind.verbs.get(verb)]
                for verb in verbs
            )
            row = "  ".join(
                f"{cell:{len(verb)}}" for cell, verb in zip(cells, verbs, strict=True)
            )
            self.stdout.write(f"{kind.resource:{width}}  {row}".rstrip())


def with_embedded_files(path: str) -> str:
    """Return a kubeconfig with the content of the files that it names: the caller has them already.

    Raise InvalidManifest, CommandError.
    """
    text = read_kubeconfig(path)
    documents = load_documents(text)
    document = documents[0].data if len(documents) == 1 else None
    if not isinstance(document, dict) or path == "-":
        return text
    folder, is_changed = Path(path).parent, False
    for plural, kind in (("clusters", "cluster"), ("users", "user")):
        entries = document.get(plural)
        for entry in entries if isinstance(entries, list) else ():
            content = entry.get(kind) if isinstance(entry, dict) else None
            if isinstance(content, dict):
                is_changed = embed_files(content, folder) or is_changed
    return dump_yaml(document) if is_changed else text


def embed_files(content: dict[str, Any], folder: Path) -> bool:
    """Replace the paths of an entry by what the files contain; return whether there were any."""
    keys = [
        key
        for key in (*_FILES, "tokenFile")
        if isinstance(content.get(key), str) and content[key]
    ]
    for key in keys:
        path = folder / content.pop(key)
        try:
            file_content = path.read_bytes()
            if key == "tokenFile":
                content["token"] = file_content.decode("ascii").strip()
            else:
                content[_FILES[key]] = base64.b64encode(file_content).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise CommandError(f"{path}: {reason}", returncode=BAD_INPUT) from error
    return bool(keys)
