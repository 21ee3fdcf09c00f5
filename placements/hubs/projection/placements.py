"""Placements of a live hub and their evictions: manifest, conditions, results of controllers (10.1)."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q

from clusters.models import MirroredObject
from fleetui.apimachinery.kinds import EVICTION_KIND
from fleetui.apimachinery.model import HUB_SEMANTICS, items_at, mapping_at
from fleetui.bulk import batched
from placements.explain.rollouts import DELETED
from placements.hubs.fleet_versions import write_newly_read
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.kinds import (
    BINDING_KINDS,
    PLACEMENT_KINDS,
    POLICY_KINDS,
    RESOURCE_KINDS,
    RUN_KINDS,
)
from placements.hubs.projection.rows import (
    HUB,
    Conditions,
    HubDocument,
    HubMoment,
    RowKind,
    WrittenRow,
    understood,
)
from placements.manifests.binding import BindingState
from placements.manifests.disruption import parse_eviction
from placements.manifests.placement import parse_placement
from placements.models import Binding, DueJudgement, Eviction, Placement, Rollout
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


class PlacementRows(RowKind[Placement]):
    """Placements; what belongs to one may have come before it, and is projected after it."""

    model = Placement
    mirrored = PLACEMENT_KINDS
    noun = PLACEMENT
    columns = (
        "document",
        "revision",
        "created_at",
        "deleting_since",
        "placement_type",
        "number_of_clusters",
        "semantics",
        "label_keys_read",
        "property_names_read",
        "revision_history_limit",
        "named_count",
        "strategy_type",
        "unavailable_period",
        "reschedules_on_fleet_change",
        "is_fulfilled",
        "selected_count",
        "scheduled",
        "scheduled_since",
        "conditions",
        "hub_conditions",
        "spec_generation",
    )
    bookkeeping = ("hub_changes", "observe_rollout", "updated_at")
    is_namespaced = True
    keeps = True

    def fill(self, row: Placement, document: HubDocument) -> bool:
        manifest = understood(document, parse_placement)
        if manifest is None:
            return False
        parsed, stored = manifest
        row.document = stored
        row.created_at = document.created_at
        row.deleting_since = document.deleting_since
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
            conditions.get(kind, {}),
            "lastTransitionTime",
            path=f"status.conditions.{kind}",
        )
        row.is_fulfilled = {"True": True, "False": False}.get(row.scheduled)
        row.conditions = {
            one.removeprefix(document.row.kind): values
            for one, values in current.items()
        }
        return True

    def change(self, before: Placement, row: Placement) -> None:
        if row.document == before.document:
            row.updated_at = before.updated_at
        row.hub_changes += 1
        row.observe_rollout = True

    def conditions(self, row: Placement) -> Conditions:
        return row.hub_conditions

    def follow(self, written: Sequence[WrittenRow[Placement]]) -> None:
        added = []
        restarted = []
        for one in written:
            name = one.document.full_name
            before = one.before
            if before is None:
                added.append(name)
            elif started(before) != started(one.row):
                restarted.append(name)
        mark_children(added, kinds=CHILD_KINDS)
        # Whether a binding has started follows from the condition of its placement, too.
        mark_children(restarted, kinds=BINDING_KINDS)
        # The status, which may be all that changed, lists the objects of the resource snapshot.
        names = [one.full_name for one in self.documents]
        mark_children(names, kinds=RESOURCE_KINDS)
        mark_due([one.row.pk for one in written], now=self.moment.now)
        write_newly_read(now=self.moment.now)

    def delete(self, pks: Sequence[int]) -> None:
        rows = Placement.objects.filter(pk__in=pks)
        names = list(rows.values_list("full_name", flat=True))
        delete_placements(pks, now=self.moment.now)
        mark_children(names, kinds=CHILD_KINDS)


def started(row: Placement) -> str:
    """Return the status of RolloutStarted, "" where it is about an earlier generation."""
    return str(row.conditions.get("RolloutStarted", [""])[0])


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


def note_changes(placements: Collection[int], *, now: datetime) -> None:
    """Note that the bindings of placements changed: how many clusters these are on, and what follows.

    The pages poll `hub_changes`; rollouts are observed, and decisions recorded.
    """
    is_active = ~Q(bindings__state=BindingState.UNSCHEDULED)
    for part in batched(sorted(placements)):
        rows = Placement.objects.filter(pk__in=part)
        counted = rows.annotate(count=Count("bindings", filter=is_active))
        for pk, count in counted.values_list("pk", "count"):
            Placement.objects.filter(pk=pk).update(
                placed_count=count,
                hub_changes=F("hub_changes") + 1,
                observe_rollout=True,
            )
    mark_due(placements, now=now)


QUIET = timedelta(seconds=3)
"""How long nothing changes before a decision is recorded: the hub may be in the middle of its cycles."""
LONGEST_WAIT = timedelta(seconds=60)


def mark_due(placements: Collection[int], *, now: datetime) -> None:
    """Schedule the recording of decisions, a minute after the first change at the latest.

    The caller holds the lock of the fleet, as all that mark do. See `rules/live-hub.md#replays`.
    """
    times = {"changed_at": now, "due_at": now + QUIET}
    for part in batched(sorted(placements)):
        rows = [DueJudgement(placement_id=pk, **times) for pk in part]
        DueJudgement.objects.bulk_create(rows, ignore_conflicts=True)
        recent = DueJudgement.objects.filter(
            placement__in=part, changed_at__gt=now - LONGEST_WAIT + QUIET
        )
        recent.update(due_at=now + QUIET)


def delete_placements(pks: Sequence[int], *, now: datetime) -> None:
    """Delete placements with what belongs to them; bindings first, which refer to snapshots."""
    for part in batched(pks):
        running = Rollout.objects.filter(
            placement__in=part, state=Rollout.State.RUNNING
        )
        running.update(state=Rollout.State.STOPPED, ended_at=now, ended_reason=DELETED)
        Binding.objects.filter(placement__in=part).delete()
        Placement.objects.filter(pk__in=part).delete()


_OUTCOMES = {"True": Eviction.Outcome.EXECUTED, "False": Eviction.Outcome.NOT_EXECUTED}


class EvictionRows(RowKind[Eviction]):
    """Evictions; the placement of one may come later, or be deleted."""

    model = Eviction
    mirrored = (EVICTION_KIND,)
    noun = "eviction"
    columns = (
        "document",
        "placement_id",
        "placement_name",
        "cluster_name",
        "outcome",
        "hub_conditions",
        "at",
        "by",
    )
    has_uid = False

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        super().__init__(documents, moment)
        self.placements = placement_keys(documents)

    def fill(self, row: Eviction, document: HubDocument) -> bool:
        pair = understood(document, parse_eviction)
        if pair is None:
            return False
        parsed, row.document = pair
        row.placement_name = parsed.spec.placement_name
        row.cluster_name = parsed.spec.cluster_name
        conditions = document.conditions("status", "conditions")
        row.hub_conditions = list(conditions.values())
        if conditions.get("Valid", {}).get("status") == "False":
            row.outcome = Eviction.Outcome.INVALID
        else:
            executed = str(conditions.get("Executed", {}).get("status"))
            row.outcome = _OUTCOMES.get(executed, Eviction.Outcome.PENDING)
        row.at = document.created_at
        row.by = document.manager("spec") or HUB
        row.placement_id = self.placements.get(document.row.owner)
        return True

    def conditions(self, row: Eviction) -> Conditions:
        return row.hub_conditions
