"""Placements of a live hub: manifest, conditions of the hub, number of clusters (10.1)."""

from collections.abc import Collection, Iterable, Sequence
from copy import copy, deepcopy
from typing import Any

from django.db.models import Count, F, Q

from clusters.hubs.kinds.base import items_at
from clusters.hubs.kinds.kubefleet import PLACEMENT_GROUP
from clusters.models import MirroredObject
from fleetui.apimachinery.errors import InvalidManifest, split_path
from fleetui.apimachinery.model import HUB_SEMANTICS
from fleetui.bulk import BATCH_SIZE, batched
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.models import Binding, Placement
from placements.services.hubs.due import mark_named
from placements.services.hubs.fleet_versions import write_newly_read
from placements.services.hubs.projection.documents import HubDocument, HubMoment
from placements.services.snapshots import placement_columns

PLACEMENT_KIND = "ClusterResourcePlacement"
SNAPSHOT_KIND = "ClusterResourceSnapshot"  # the status of the placement lists its objects
CHILD_KINDS = ("ClusterSchedulingPolicySnapshot", SNAPSHOT_KIND, "ClusterResourceBinding")
SCHEDULED = f"{PLACEMENT_KIND}Scheduled"
NO_PLACEMENT = "its placement is not in the mirror"
_ROUNDS = 8
_COLUMNS = (
    *("document", "created_at", "deleting_since", "placement_type", "number_of_clusters", "semantics"),
    *("label_keys_read", "property_names_read", "revision_history_limit", "named_count", "strategy_type"),
    *("unavailable_period", "reschedules_on_fleet_change", "is_fulfilled", "selected_count", "scheduled"),
    *("scheduled_since", "conditions", "hub_conditions"),
)


def project_placements(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write the rows of these placements where they differ.

    What belongs to a placement that is new here may have come before it, and is projected after it.
    """
    names = [one.row.name for one in documents]
    there = {row.name: row for row in Placement.objects.filter(name__in=names)}
    replaced = [
        there.pop(one.row.name).pk
        for one in documents
        if one.row.name in there and there[one.row.name].uid != one.uid
    ]
    delete_placements(replaced)
    new, changed = [], []
    for one in documents:
        before = there.get(one.row.name)
        row = placement_row(one, before)
        if row is None:
            continue
        if before is None:
            row.updated_at = moment.now
            new.append(row)
        elif any(getattr(before, name) != getattr(row, name) for name in _COLUMNS):
            row.updated_at = moment.now
            row.revision += 1
            changed.append(row)
    Placement.objects.bulk_create(new, batch_size=BATCH_SIZE)
    Placement.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=[*_COLUMNS, "revision", "updated_at"],
        batch_size=BATCH_SIZE,
    )
    mark_children([row.name for row in new], kinds=CHILD_KINDS)
    mark_children(names, kinds=[SNAPSHOT_KIND])
    mark_named([row.name for row in (*new, *changed)], now=moment.now)
    write_newly_read(is_live=moment.is_live, now=moment.now)


def placement_row(document: HubDocument, before: Placement | None) -> Placement | None:
    """Return the row of a placement; None if nothing of it can be shown."""
    manifest = understood_manifest(document)
    if manifest is None:
        return None
    parsed, stored = manifest
    row = copy(before) if before else Placement(name=document.row.name, uid=document.uid)
    row.document, row.created_at, row.deleting_since = stored, document.created_at, document.deleting_since
    for name, value in placement_columns(parsed).items():
        setattr(row, name, value)
    row.semantics = HUB_SEMANTICS  # whatever annotations say
    row.reschedules_on_fleet_change = False  # the hub does
    if "status" in document.content:
        row.selected_count = len(items_at(document.content, "status", "selectedResources"))
    else:
        row.selected_count = None

    conditions = document.conditions("status", "conditions")
    row.hub_conditions = list(conditions.values())
    current = current_conditions(document, conditions)
    scheduled = current.pop(SCHEDULED, ["Unknown", None])
    row.scheduled = scheduled[0] if scheduled[0] in ("True", "False") else "Unknown"
    row.scheduled_since = document.moment_in(
        conditions.get(SCHEDULED, {}), "lastTransitionTime", path=f"status.conditions.{SCHEDULED}"
    )
    row.is_fulfilled = {"True": True, "False": False}.get(row.scheduled)
    row.conditions = {kind.removeprefix(PLACEMENT_KIND): values for kind, values in current.items()}
    return row


def current_conditions(document: HubDocument, conditions: Any) -> dict[str, list[str]]:
    """Return value and time of the conditions that are about the present generation, by type."""
    return {
        kind: [one["status"], str(one.get("lastTransitionTime") or document.created_at.isoformat())]
        for kind, one in conditions.items()
        if one.get("observedGeneration") == document.row.generation
    }


def understood_manifest(document: HubDocument) -> tuple[ClusterResourcePlacement, dict[str, Any]] | None:
    """Return what is understood of the manifest of a placement, parsed and as it is stored.

    The hub accepted it, so it is not refused here: what a newer API allows is left out, path by path.
    """
    stored = deepcopy(document.manifest(document.spec))
    for _ in range(_ROUNDS):
        try:
            return parse_placement(stored), stored
        except InvalidManifest as found:
            paths = sorted({one.path for one in found.faults}, reverse=True)
        for path in paths:
            document.reject(path)
        # Each list is cut from its end, so that the places before keep their numbers.
        keys = sorted(map(split_path, paths), key=lambda one: [(isinstance(key, str), key) for key in one])
        cuts = [_leave_out(stored, one) for one in reversed(keys)]
        if not any(cuts):
            break
    document.error = "the manifest is not understood"
    return None


def _leave_out(stored: dict[str, Any], keys: Sequence[str | int]) -> bool:
    """Remove the value at this place, or the item of a list that lacks it; return whether there was one."""
    if keys[:1] != ("spec",) and keys[:2] != ("metadata", "annotations"):
        return False
    around: list[Any] = [stored]
    for key in keys[:-1]:
        if not _has(around[-1], key):
            break
        around.append(around[-1][key])
    for depth in range(len(around) - 1, 0, -1):
        if _has(around[depth], keys[depth]):
            del around[depth][keys[depth]]
            return True
        if isinstance(around[depth - 1], list):
            del around[depth - 1][keys[depth - 1]]
            return True
    return False


def _has(values: Any, key: str | int) -> bool:
    if isinstance(values, list):
        return isinstance(key, int) and key < len(values)
    return isinstance(values, dict) and key in values


def mark_children(names: Collection[str], *, kinds: Iterable[str], **columns: Any) -> None:
    """Let the objects of these placements be projected again."""
    for part in batched(names):
        children = MirroredObject.objects.filter(
            kind__in=list(kinds), owner__in=part, namespace="", **columns
        )
        children.filter(group=PLACEMENT_GROUP, is_dirty=False).update(is_dirty=True)


def placements_of(documents: Sequence[HubDocument]) -> dict[str, Placement]:
    """Return the placements that these objects belong to; objects without one are marked."""
    names = {one.row.owner for one in documents}
    rows = Placement.objects.filter(name__in=names).defer("document")
    found = {row.name: row for row in rows}
    for one in documents:
        if one.row.owner not in found:
            one.error = NO_PLACEMENT
    return found


def count_placed(placements: Collection[Placement]) -> None:
    """Write how many clusters each placement is on, and a new revision, which pages poll."""
    for part in batched([one.pk for one in placements]):
        is_active = ~Q(bindings__state=BindingState.UNSCHEDULED)
        rows = Placement.objects.filter(pk__in=part)
        counted = rows.annotate(count=Count("bindings", filter=is_active)).values_list("pk", "count")
        for pk, count in counted:
            Placement.objects.filter(pk=pk).update(placed_count=count, revision=F("revision") + 1)


def delete_placements(pks: Sequence[int]) -> None:
    """Delete placements with what belongs to them; bindings first, which refer to snapshots."""
    for part in batched(pks):
        Binding.objects.filter(placement__in=part).delete()
        Placement.objects.filter(pk__in=part).delete()


def remove_placements(_moment: HubMoment) -> int:
    """Delete the placements that the mirror has no more; return how many."""
    names = MirroredObject.objects.filter(group=PLACEMENT_GROUP, kind=PLACEMENT_KIND).values("name")
    gone = list(Placement.objects.exclude(name__in=names).values_list("pk", flat=True))
    names_gone = list(Placement.objects.filter(pk__in=gone).values_list("name", flat=True))
    delete_placements(gone)
    mark_children(names_gone, kinds=CHILD_KINDS)
    return len(gone)
