"""manage.py export: what is on the hub, as the manifests that were applied, with our status."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.models import MemberCluster
from clusters.queries import manifest_of as cluster_manifest
from fleetui.management.hub_command import HubCommand
from placements.manifests import dump_yaml
from placements.models import (
    ApprovalRequest,
    DisruptionBudget,
    Override,
    Placement,
    Resource,
    StagedRun,
    StagedStrategy,
)
from placements.queries.staged import run_manifest
from placements.queries.status import manifest_of as placement_manifest

NOT_FOUND = 1


def _named(rows: Any, names: Iterable[str]) -> Any:
    wanted = list(names)
    return rows.filter(name__in=wanted) if wanted else rows


def _approvals(names: Iterable[str]) -> list[dict[str, Any]]:
    rows = ApprovalRequest.objects.select_related("run").order_by("pk")
    wanted = set(names)
    return [row.to_manifest() for row in rows if not wanted or str(row) in wanted]


def _budgets(names: Iterable[str]) -> list[dict[str, Any]]:
    return [dict(row.document) for row in _named(DisruptionBudget.objects.order_by("name"), names)]


def _clusters(names: Iterable[str]) -> list[dict[str, Any]]:
    return [cluster_manifest(row) for row in _named(MemberCluster.objects.order_by("name"), names)]


def _overrides(names: Iterable[str]) -> list[dict[str, Any]]:
    rows = Override.objects.order_by("kind", "namespace", "name")
    return [dict(row.document) for row in _named(rows, names)]


def _placements(names: Iterable[str]) -> list[dict[str, Any]]:
    return [placement_manifest(row) for row in _named(Placement.objects.order_by("name"), names)]


def _resources(names: Iterable[str]) -> list[dict[str, Any]]:
    rows = Resource.objects.order_by("group", "kind", "namespace", "name")
    return [dict(row.content) for row in _named(rows, names)]


def _runs(names: Iterable[str]) -> list[dict[str, Any]]:
    return [run_manifest(row) for row in _named(StagedRun.objects.order_by("name"), names)]


def _strategies(names: Iterable[str]) -> list[dict[str, Any]]:
    return [dict(row.document) for row in _named(StagedStrategy.objects.order_by("name"), names)]


_MANIFESTS = {
    "approvals": _approvals,
    "budgets": _budgets,
    "clusters": _clusters,
    "overrides": _overrides,
    "placements": _placements,
    "resources": _resources,
    "runs": _runs,
    "strategies": _strategies,
}


class Command(HubCommand):
    """Print manifests."""

    help = "Print what is on the hub as manifests."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("kind", choices=list(_MANIFESTS))
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these; by default all")
        parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml")
        parser.add_argument("--no-status", action="store_true", help="leave out what the hub wrote")

    def handle(self, *, kind: str, names: list[str], output: str, no_status: bool, **_options: Any) -> None:
        """Print the manifests that were asked for, by name."""
        manifests = _MANIFESTS[kind](names)
        missing = set(names) - {one["metadata"]["name"] for one in manifests}
        if missing:
            raise CommandError(f"not on the hub: {', '.join(sorted(missing))}", returncode=NOT_FOUND)
        if no_status:
            manifests = [{key: one[key] for key in one if key != "status"} for one in manifests]
        if output == "json":
            listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
            self.stdout.write(json.dumps(listed, ensure_ascii=False, indent=2))
        else:
            self.stdout.write("---\n".join(map(dump_yaml, manifests)), ending="")
