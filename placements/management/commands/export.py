"""manage.py export KIND [NAME ...]: print objects of the hub as manifests with status."""

import json
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from clusters import queries
from clusters.models import MemberCluster
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.metadata import with_hub_metadata
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
from placements.services.results import read_manifest, stored_document
from placements.services.rollouts.queries import run_manifest

NOT_FOUND = 1


def _document_of(row: Any) -> dict[str, Any]:
    return read_manifest(row, plain_manifest(row.document, shown_as=f"export {row}"))


def _approval_of(row: ApprovalRequest) -> dict[str, Any]:
    manifest = row.to_manifest()
    approved = manifest.get("status")
    return with_hub_metadata(
        manifest,
        approved,
        uid=str(row.uid),
        revision=1,
        generation=1,
        created_at=row.requested_at,
    )


_KINDS: dict[
    str, tuple[Callable[[], QuerySet[Any]], Callable[[Any], dict[str, Any]]]
] = {
    "approvals": (
        lambda: ApprovalRequest.objects.select_related("run").order_by("pk"),
        _approval_of,
    ),
    "budgets": (lambda: DisruptionBudget.objects.order_by("name"), _document_of),
    "clusters": (lambda: MemberCluster.objects.order_by("name"), queries.manifest_of),
    "overrides": (
        lambda: Override.objects.order_by("kind", "namespace", "name"),
        _document_of,
    ),
    "placements": (lambda: Placement.objects.order_by("full_name"), status.manifest_of),
    "resources": (
        lambda: Resource.objects.order_by("group", "kind", "namespace", "name"),
        lambda row: read_manifest(
            row, plain_manifest(row.content, shown_as=f"export {row}")
        ),
    ),
    "runs": (
        lambda: StagedRun.objects.order_by("full_name"),
        lambda row: read_manifest(row, row.document, run_manifest(row)["status"]),
    ),
    "strategies": (lambda: StagedStrategy.objects.order_by("full_name"), _document_of),
}


class Command(HubCommand):
    """Print manifests of objects on the hub."""

    help = "Print objects of the hub as manifests."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("kind", choices=list(_KINDS))
        parser.add_argument(
            "names",
            nargs="*",
            metavar="NAME",
            help="names of the objects, NAMESPACE/NAME of namespaced placements and runs (default: all)",
        )
        parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml")
        parser.add_argument(
            "--no-status",
            action="store_true",
            help="omit what the hub sets: the status and parts of the metadata",
        )

    def handle(
        self,
        *,
        kind: str,
        names: list[str],
        output: str,
        no_status: bool,
        **_options: Any,
    ) -> None:
        find, manifest_of = _KINDS[kind]
        rows = find()
        column = "full_name" if hasattr(rows.model, "full_name") else "name"
        if kind == "approvals":  # whose name is not a column
            objects = [row for row in rows if not names or str(row) in names]
            missing = set(names) - set(map(str, objects))
        else:
            objects = list(rows.filter(**{f"{column}__in": names}) if names else rows)
            missing = set(names) - {getattr(row, column) for row in objects}
        manifests = list(map(manifest_of, objects))
        if missing:
            raise CommandError(
                f"Not found: {', '.join(sorted(missing))}", returncode=NOT_FOUND
            )
        if no_status:
            manifests = [stored_document(one) for one in manifests]
        if output == "json":
            document = {"apiVersion": "v1", "kind": "List", "items": manifests}
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            self.stdout.write("---\n".join(map(dump_yaml, manifests)), ending="")
