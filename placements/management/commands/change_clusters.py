"""manage.py change_clusters ACTION [NAME ...]: change many clusters at once."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.filters import ClusterFilter, parse_filter_text
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.errors import REFUSED
from fleetui.management.hub_command import HubCommand
from placements.models import BulkChange
from placements.services.bulk_changes import (
    BulkAction,
    BulkOutcome,
    apply_batch,
    preview_change,
    read_options,
    results_of,
    selected_clusters,
    start_change,
)
from placements.services.fleet.forms import read_cluster


class Command(HubCommand):
    """Change labels, taints or cordon of many clusters, drain them or remove them from the fleet."""

    help = "Change many clusters at once and print the result of each."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("action", choices=[str(one) for one in BulkAction])
        add("names", nargs="*", metavar="NAME")
        add("--filter", metavar="TEXT", help="all clusters that match, such as 'region=east status=ready'")
        for name, what in (("set", "label to set"), ("add", "taint to add")):
            metavar = "KEY=VALUE" if name == "set" else "KEY[=VALUE][:EFFECT]"
            add(f"--{name}", action="append", default=[], metavar=metavar, help=what)
        add("--remove", action="append", default=[], metavar="KEY", help="label key or taint to remove")
        add("--dry-run", action="store_true", help="print the changes and change nothing")

    def handle(self, *, action: str, names: list[str], dry_run: bool, **options: Any) -> None:
        """Change the clusters, or print what would change; exit status 1 if any cluster failed."""
        bulk_action = BulkAction(action)
        typed = read_cluster("\n".join(options["set"]), "\n".join(options["add"]))
        is_taints = bulk_action is BulkAction.TAINTS
        removed = read_cluster("", "\n".join(options["remove"]) if is_taints else "")
        if errors := (*typed.errors, *removed.errors):
            raise InvalidManifest(errors)
        labels = {**typed.labels, **({} if is_taints else dict.fromkeys(options["remove"]))}
        values = {"labels": labels, "add": typed.taints, "remove": removed.taints}
        parameters = read_options(bulk_action, values)
        matching = None if options["filter"] is None else ClusterFilter(*parse_filter_text(options["filter"]))
        clusters, now = selected_clusters(names, matching), datetime.now(UTC)
        if dry_run:
            preview = preview_change(bulk_action, parameters, clusters)
            for one in preview.rows:
                words = f" ({one.conflict})" if one.conflict else ""
                self.stdout.write(f"{one.name}: {one.change or 'unchanged'}{words}")
            for each in preview.impact.rows:
                counts = f"placement {each.placement}: {each.placed_before} -> {each.placed_after}"
                self.stdout.write(" ".join(filter(None, [counts, each.balance])))
            return
        row: BulkChange = start_change(bulk_action, parameters, clusters, by=None, now=now)
        while row.ended_at is None:
            apply_batch(row, now=datetime.now(UTC))
        results = results_of(row)
        for result in results:
            message = f": {result.message}" if result.message else ""
            self.stdout.write(f"{result.name}: {result.outcome}{message}")
        if any(result.outcome is BulkOutcome.FAILED for result in results):
            raise CommandError("some clusters were not changed", returncode=REFUSED)
