"""manage.py export KIND [NAME ...]: print objects of the hub as manifests with status."""

import json
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from clusters import queries
from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.management.hub_command import HubCommand
from placements.models import (
    ApprovalRequest,
    DisruptionBudget,
    Override,
    Placement,
    Resource,
    StagedRun,
    StagedStrategy,
)
from placements.services import status
from placements.services.rollouts.staged_queries import run_manifest

NOT_FOUND = 1


_KINDS: dict[str, tuple[QuerySet[Any], Callable[[Any], dict[str, Any]]]] = {
    "approvals": (ApprovalRequest.objects.select_related("run").order_by("pk"), ApprovalRequest.to_manifest),
    "budgets": (DisruptionBudget.objects.order_by("name"), lambda row: dict(row.document)),
    "clusters": (MemberCluster.objects.order_by("name"), queries.manifest_of),
    "overrides": (Override.objects.order_by("kind", "namespace", "name"), lambda row: dict(row.document)),
    "placements": (Placement.objects.order_by("name"), status.manifest_of),
    "resources": (
        Resource.objects.order_by("group", "kind", "namespace", "name"),
        lambda row: dict(row.content),
    ),
    "runs": (StagedRun.objects.order_by("name"), run_manifest),
    "strategies": (StagedStrategy.objects.order_by("name"), lambda row: dict(row.document)),
}


class Command(HubCommand):
    """Print manifests of objects on the hub."""

    help = "Print objects of the hub as manifests."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=list(_KINDS))
        parser.add_argument("names", nargs="*", metavar="NAME", help="names of the objects (default: all)")
        parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml")
        parser.add_argument("--no-status", action="store_true", help="omit the status")

    def handle(self, *, kind: str, names: list[str], output: str, no_status: bool, **_options: Any) -> None:
        rows, manifest_of = _KINDS[kind]
        if names and kind != "approvals":  # the name of an approval request is not a column
            rows = rows.filter(name__in=names)
        manifests = [
            manifest_of(row) for row in rows.all() if not names or kind != "approvals" or str(row) in names
        ]
        missing = set(names) - {one["metadata"]["name"] for one in manifests}
        if missing:
            raise CommandError(f"Not found: {', '.join(sorted(missing))}", returncode=NOT_FOUND)
        if no_status:
            manifests = [{key: one[key] for key in one if key != "status"} for one in manifests]
        if output == "json":
            document = {"apiVersion": "v1", "kind": "List", "items": manifests}
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            self.stdout.write("---\n".join(map(dump_yaml, manifests)), ending="")
