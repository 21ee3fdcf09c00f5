"""Overrides with their snapshots, and disruption budgets of a live hub (10.1)."""

import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

from clusters.models import MirroredObject
from fleetui.apimachinery.kinds import BUDGET_KIND, CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from fleetui.bulk import BATCH_SIZE, batched
from fleetui.encryption import without_values
from placements.hubs.kinds.base import text_of
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.placements import columns_by_number, write_numbered
from placements.hubs.projection.rows import (
    HubDocument,
    HubMoment,
    RowKind,
    WrittenRow,
    save_marks,
)
from placements.hubs.trimming import OVERRIDE_OF
from placements.manifests.disruption import parse_disruption_budget
from placements.manifests.override import (
    PlacementScope,
    parse_cluster_override,
    parse_override,
)
from placements.models import (
    DisruptionBudget,
    Override,
    OverrideSnapshot,
    OverrideTarget,
)

_INDEX = re.compile(r"-\d{1,9}$")


class BudgetRows(RowKind[DisruptionBudget]):
    model = DisruptionBudget
    mirrored = (BUDGET_KIND,)
    noun = "budget"
    columns = ("document", "created_at", "revision")
    bookkeeping = ("updated_at",)
    parse = staticmethod(parse_disruption_budget)


class OverrideRows(RowKind[Override]):
    """Overrides of objects with a namespace."""

    model = Override
    mirrored = (OVERRIDE_KIND,)
    noun = "override"
    columns = ("document", "placement_name", "created_at", "revision")
    bookkeeping = ("updated_at",)
    where = MappingProxyType({"kind": OVERRIDE_KIND})
    is_namespaced = True
    parse: Callable[[object], Any] = staticmethod(parse_override)
    selectors = "resourceSelectors"

    def set_columns(self, row: Override, document: HubDocument, parsed: Any) -> None:  # noqa: ARG002 -- of a kind
        row.document = without_values(row.document)
        row.placement_name = parsed.placement

    def follow(self, written: Sequence[WrittenRow[Override]]) -> None:
        """Write the resources that overrides select: what is previewed has to find them."""
        rows = [row.row for row in written]
        OverrideTarget.objects.filter(override__in=[row.pk for row in rows]).delete()
        targets = [
            OverrideTarget(
                override=row,
                override_kind=row.kind,
                namespace=row.namespace,
                **{
                    key: text_of(mapping_at(selector).get(key))
                    for key in ("group", "version", "kind", "name")
                },
            )
            for row in rows
            for selector in items_at(row.document, "spec", self.selectors)
        ]
        OverrideTarget.objects.bulk_create(targets, batch_size=BATCH_SIZE)


class ClusterOverrideRows(OverrideRows):
    """Overrides of cluster-scoped objects."""

    mirrored = (CLUSTER_OVERRIDE_KIND,)
    noun = "cluster-override"
    where = MappingProxyType({"kind": CLUSTER_OVERRIDE_KIND})
    parse = staticmethod(parse_cluster_override)
    selectors = "clusterResourceSelectors"


def project_override_snapshots(
    documents: Sequence[HubDocument], _moment: HubMoment
) -> None:
    """Write the snapshots of all overrides that these belong to: which is the latest depends on all."""
    kind = documents[0].row.kind
    changed = {document.row.pk: document for document in documents}
    places = {_override_of(document.row) for document in documents}
    rows = MirroredObject.objects.filter(group=PLACEMENT_GROUP, kind=kind).order_by(
        "pk"
    )
    siblings: dict[tuple[str, str], list[HubDocument]] = {place: [] for place in places}
    for row in rows.defer("manifest"):
        if (place := _override_of(row)) in siblings:
            siblings[place].append(changed.get(row.pk) or HubDocument.of(row))
    for place, snapshots in siblings.items():
        _write_snapshots(OVERRIDE_OF[kind], place, snapshots)
        save_marks(snapshots)


def _override_of(row: MirroredObject) -> tuple[str, str]:
    """Return namespace and name of the override of a snapshot, which is named after it."""
    return row.namespace, _INDEX.sub("", row.name)


def _write_snapshots(
    kind: str, place: tuple[str, str], documents: Sequence[HubDocument]
) -> None:
    namespace, name = place
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})

    def columns_of(one: HubDocument) -> dict[str, Any]:
        spec = mapping_at(one.spec, "overrideSpec")
        reference = mapping_at(spec, "placement")
        is_namespaced = reference.get("scope") == PlacementScope.NAMESPACED
        head = {"apiVersion": one.content["apiVersion"], "kind": kind}
        return {
            "document": without_values({**head, "metadata": metadata, "spec": spec}),
            "content_hash": str(one.spec.get("overrideHash") or "")[:64],
            "placement_name": full_name(
                namespace if is_namespaced else "", text_of(reference.get("name"))
            ),
        }

    documents = sorted(documents, key=lambda one: (one.row.number or 0, one.row.name))
    by_number = columns_by_number(documents, columns_of)
    place_columns = {"kind": kind, "namespace": namespace, "override_name": name}
    rows = OverrideSnapshot.objects.filter(**place_columns)
    rows.exclude(number__in=by_number).delete()
    write_numbered(OverrideSnapshot, place_columns, by_number)


def remove_override_snapshots(kind: str, _moment: HubMoment) -> int:
    """Delete the snapshots that the mirror has no more; of two latest ones another may be the latest now."""
    objects = MirroredObject.objects.filter(group=PLACEMENT_GROUP, kind=kind)
    places = {
        (*_override_of(row), row.number)
        for row in objects.only("namespace", "name", "number")
    }
    rows = OverrideSnapshot.objects.filter(kind=OVERRIDE_OF[kind])
    columns = rows.values_list("pk", "namespace", "override_name", "number")
    gone = {pk: place for pk, *place in columns if tuple(place) not in places}
    for part in batched(list(gone)):
        OverrideSnapshot.objects.filter(pk__in=part).delete()
    for name in {f"{name}-" for _, name, _ in gone.values()}:
        objects.filter(name__startswith=name, is_dirty=False).update(is_dirty=True)
    return len(gone)
