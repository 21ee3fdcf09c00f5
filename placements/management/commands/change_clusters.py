"""manage.py change_clusters ACTION [NAME ...]: change many clusters at once."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from clusters.filters import ClusterFilter, filter_params, parse_filter_text
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.management.server_command import ServerCommand
from fleetui.remote import RemoteClient
from placements.services.bulk_changes import (
    BULK_ACTIONS,
    change_clusters,
    preview_change,
    read_options,
    selected_clusters,
)
from placements.services.fleet.forms import read_cluster


class Command(ServerCommand):
    """Change labels, taints or cordon of many clusters, drain them or remove them from the fleet."""

    help = "Change many clusters at once, all or none, and print the change of each."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add = parser.add_argument
        add("action", choices=list(BULK_ACTIONS))
        add("names", nargs="*", metavar="NAME")
        add(
            "--filter",
            metavar="TEXT",
            help="all clusters that match, such as 'region=east status=ready'",
        )
        for name, what in (("set", "label to set"), ("add", "taint to add")):
            metavar = "KEY=VALUE" if name == "set" else "KEY[=VALUE][:EFFECT]"
            add(f"--{name}", action="append", default=[], metavar=metavar, help=what)
        add(
            "--remove",
            action="append",
            default=[],
            metavar="KEY",
            help="label key or taint to remove",
        )
        add(
            "--dry-run",
            action="store_true",
            help="print the changes and change nothing",
        )

    def handle(
        self,
        *,
        action: str,
        names: list[str],
        dry_run: bool,
        client: RemoteClient | None,
        **options: Any,
    ) -> None:
        is_taints = action == "taints"
        typed = read_cluster("\n".join(options["set"]), "\n".join(options["add"]))
        removed = read_cluster("", "\n".join(options["remove"]) if is_taints else "")
        if errors := (*typed.errors, *removed.errors):
            raise InvalidManifest(errors)
        labels: dict[str, str | None] = {**typed.labels}
        if not is_taints:
            labels |= dict.fromkeys(options["remove"])
        values = {"labels": labels, "add": typed.taints, "remove": removed.taints}
        matching = (
            None if options["filter"] is None else parse_filter_text(options["filter"])
        )
        if client is None:
            self._change_here(action, values, names, matching, is_dry_run=dry_run)
        else:
            body: dict[str, Any] = {"action": action, "names": names, **values}
            if matching is not None:
                params = filter_params(matching)
                labels_of_filter = params.pop("label", [])
                body["filter"] = {key: value for key, [value] in params.items()}
                body["filter"]["labels"] = labels_of_filter
            self._change_there(client, body, is_dry_run=dry_run)

    def _change_here(
        self,
        name: str,
        values: dict[str, Any],
        names: list[str],
        matching: ClusterFilter | None,
        *,
        is_dry_run: bool,
    ) -> None:
        action = BULK_ACTIONS[name]
        options = read_options(action, values)
        clusters = selected_clusters(names, matching)
        if not is_dry_run:
            result = change_clusters(
                action, options, clusters, by=None, now=datetime.now(UTC)
            )
            for row in result.rows:
                self._write_change(row.name, row.change, row.conflict)
            return
        preview = preview_change(action, options, clusters, now=datetime.now(UTC))
        for row in preview.rows:
            self._write_change(row.name, row.change, row.refusal or row.conflict)
        for each in preview.impact.rows:
            counts = f"placement {each.placement}: {each.placed_before} -> {each.placed_after}"
            self.stdout.write(" ".join(filter(None, [counts, each.message])))

    def _change_there(
        self,
        client: RemoteClient,
        body: dict[str, Any],
        *,
        is_dry_run: bool,
    ) -> None:
        query = {"dryRun": "All"} if is_dry_run else {}
        content = json.dumps(body).encode()
        document = client.request(
            "POST",
            "cluster-changes",
            query=query,
            body=content,
            content_type="application/json",
        )
        for row in document["clusters"]:
            self._write_change(
                row["name"], row["change"], row["refusal"] or row["conflict"]
            )
        for each in document["decisions"]:
            self.stdout.write(
                f"placement {each['placement']}: {each['placedBefore']} -> {each['placedAfter']}"
            )

    def _write_change(
        self,
        name: str,
        change: str,
        about: str,
    ) -> None:
        words = f" ({about})" if about else ""
        self.stdout.write(f"{name}: {change or 'unchanged'}{words}")
