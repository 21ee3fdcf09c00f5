"""Placements of a live hub: manifest, conditions of the hub, number of clusters (10.1)."""

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q

from clusters.models import MirroredObject
from fleetui.apimachinery.kinds import EVICTION_KIND
from fleetui.apimachinery.model import HUB_SEMANTICS
from fleetui.bulk import BATCH_SIZE, batched
from placements.explain.rollouts import DELETED
from placements.hubs.due import mark_named
from placements.hubs.fleet_versions import write_newly_read
from placements.hubs.kinds.base import items_at, mapping_at
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import HubEvents
from placements.hubs.projection.kinds import (
    BINDING_KINDS,
    PLACEMENT_KINDS,
    POLICY_KINDS,
    RESOURCE_KINDS,
    RUN_KINDS,
)
from placements.hubs.projection.leniency import understood
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.models import Binding, Placement, Rollout
from placements.services.results import PLACEMENT
from placements.services.snapshots import placement_columns

CHILD_KINDS = (
    *POLICY_KINDS,
    *RESOURCE_KINDS,
    *BINDING_KINDS,
    *RUN_KINDS,
    EVICTION_KIND,
)
NO_PLACEMENT = "its placement is not in the mirror"
_COLUMNS = (
    *("document", "revision", "created_at", "deleting_since"),
    *("placement_type", "number_of_clusters", "semantics"),
    *(
        "label_keys_read",
        "property_names_read",
        "revision_history_limit",
        "named_count",
        "strategy_type",
    ),
    *(
        "unavailable_period",
        "reschedules_on_fleet_change",
        "is_fulfilled",
        "selected_count",
        "scheduled",
    ),
    *("scheduled_since", "conditions", "hub_conditions", "spec_generation"),
)


def project_placements(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write the rows of these placements where they differ.

    What belongs to a placement that is new here may have come before it, and is projected after it.
    """
    names = [one.full_name for one in documents]
    there = {
        row.full_name: row for row in Placement.objects.filter(full_name__in=names)
    }
    replaced = [
        there.pop(one.full_name).pk
        for one in documents
        if one.full_name in there and there[one.full_name].uid != one.uid
    ]
    delete_placements(replaced, now=moment.now)
    new, added, changed, restarted = [], [], [], []
    events = HubEvents(moment)
    for one in documents:
        before = there.get(one.full_name)
        row = placement_row(one, before)
        if row is None:
            continue
        if before is None:
            row.updated_at = moment.now
            new.append(row)
            added.append(one.full_name)
        elif any(getattr(before, name) != getattr(row, name) for name in _COLUMNS):
            if row.document != before.document:
                row.updated_at = moment.now
            row.hub_changes += 1
            row.observe_rollout = True
            changed.append(row)
            if _started(before) != _started(row):
                restarted.append(one.full_name)
            events.changed(PLACEMENT, one, before.document, row.document)
            events.reported(PLACEMENT, one, before.hub_conditions, row.hub_conditions)
    Placement.objects.bulk_create(new, batch_size=BATCH_SIZE)
    Placement.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=[*_COLUMNS, "hub_changes", "updated_at", "observe_rollout"],
        batch_size=BATCH_SIZE,
    )
    events.record()
    mark_children(added, kinds=CHILD_KINDS)
    mark_children(
        restarted, kinds=BINDING_KINDS
    )  # whether one has started follows from it, too
    mark_children(
        names, kinds=RESOURCE_KINDS
    )  # the status of the placement lists their objects
    mark_named([*added, *(row.full_name for row in changed)], now=moment.now)
    write_newly_read(is_live=moment.is_live, now=moment.now)


def _started(row: Placement) -> str:
    """Return the status of RolloutStarted, "" where it is about an earlier generation."""
    return str(row.conditions.get("RolloutStarted", [""])[0])


def placement_row(document: HubDocument, before: Placement | None) -> Placement | None:
    """Return the row of a placement; None if nothing of it can be shown."""
    manifest = understood(document, parse_placement)
    if manifest is None:
        return None
    parsed, stored = manifest
    place = {"namespace": document.row.namespace, "name": document.row.name}
    row = copy(before) if before else Placement(**place, uid=document.uid)
    row.document, row.revision = stored, document.revision
    row.created_at, row.deleting_since = document.created_at, document.deleting_since
    row.spec_generation = document.row.generation or 1
    for name, value in placement_columns(parsed).items():
        setattr(row, name, value)
    row.semantics = HUB_SEMANTICS  # whatever the annotations are
    row.reschedules_on_fleet_change = False  # the hub does
    # A hub leaves the list out until it rolls out: then the number is unknown; an empty list is none.
    row.selected_count = None
    if isinstance(
        mapping_at(document.content, "status").get("selectedResources"), list
    ):
        row.selected_count = len(
            items_at(document.content, "status", "selectedResources")
        )

    conditions = document.conditions("status", "conditions")
    row.hub_conditions = list(conditions.values())
    current = current_conditions(document, conditions)
    kind = f"{document.row.kind}Scheduled"
    scheduled = current.pop(kind, ["Unknown", None])
    row.scheduled = scheduled[0] if scheduled[0] in ("True", "False") else "Unknown"
    row.scheduled_since = document.moment_in(
        conditions.get(kind, {}), "lastTransitionTime", path=f"status.conditions.{kind}"
    )
    row.is_fulfilled = {"True": True, "False": False}.get(row.scheduled)
    row.conditions = {
        one.removeprefix(document.row.kind): values for one, values in current.items()
    }
    return row


def current_conditions(document: HubDocument, conditions: Any) -> dict[str, list[str]]:
    """Return value and time of the conditions that are about the present generation, by type."""
    return {
        kind: [
            one["status"],
            str(one.get("lastTransitionTime") or document.created_at.isoformat()),
        ]
        for kind, one in conditions.items()
        if one.get("observedGeneration") == document.row.generation
    }


def mark_children(
    names: Collection[str], *, kinds: Iterable[str], **columns: Any
) -> None:
    """Mark the objects of these placements to be projected again."""
    for part in batched(names):
        children = MirroredObject.objects.filter(
            kind__in=list(kinds), owner__in=part, **columns
        )
        children.filter(group=PLACEMENT_GROUP, is_dirty=False).update(is_dirty=True)


def placements_of(documents: Sequence[HubDocument]) -> dict[str, Placement]:
    """Return the placements that these objects belong to; objects without one are marked.

    One that is being deleted may outlive its placement: its finalizers run on.
    """
    names = {one.row.owner for one in documents}
    rows = Placement.objects.filter(full_name__in=names).defer("document")
    placements = {row.full_name: row for row in rows}
    for one in documents:
        if one.row.owner not in placements and not one.row.is_deleting:
            one.error = NO_PLACEMENT
    return placements


def placement_keys(documents: Sequence[HubDocument]) -> dict[str, int]:
    """Return the primary keys of the placements that these objects name, by full name."""
    names = {one.row.owner for one in documents}
    rows = Placement.objects.filter(full_name__in=names)
    return dict(rows.values_list("full_name", "pk"))


def count_placed(placements: Collection[Placement]) -> None:
    """Write how many clusters each placement is on, and that something changed, which pages poll."""
    for part in batched([one.pk for one in placements]):
        is_active = ~Q(bindings__state=BindingState.UNSCHEDULED)
        rows = Placement.objects.filter(pk__in=part)
        counted = rows.annotate(count=Count("bindings", filter=is_active)).values_list(
            "pk", "count"
        )
        for pk, count in counted:
            Placement.objects.filter(pk=pk).update(
                placed_count=count,
                hub_changes=F("hub_changes") + 1,
                observe_rollout=True,
            )


def delete_placements(pks: Sequence[int], *, now: datetime) -> None:
    """Delete placements with what belongs to them; bindings first, which refer to snapshots."""
    for part in batched(pks):
        running = Rollout.objects.filter(
            placement__in=part, state=Rollout.State.RUNNING
        )
        running.update(state=Rollout.State.STOPPED, ended_at=now, ended_reason=DELETED)
        Binding.objects.filter(placement__in=part).delete()
        Placement.objects.filter(pk__in=part).delete()


def remove_placements(moment: HubMoment) -> int:
    """Delete the placements that the mirror has no more; return how many."""
    names = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind__in=PLACEMENT_KINDS
    ).values("owner")
    gone = list(
        Placement.objects.exclude(full_name__in=names).values_list("pk", flat=True)
    )
    names_gone = list(
        Placement.objects.filter(pk__in=gone).values_list("full_name", flat=True)
    )
    delete_placements(gone, now=moment.now)
    mark_children(names_gone, kinds=CHILD_KINDS)
    return len(gone)
