"""Placements of a live hub, their snapshots and evictions: manifest, conditions, results (10.1)."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from django.db.models import Count, Exists, F, OuterRef, Q

from clusters.models import MirroredObject
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.kinds import EVICTION_KIND, api_version_of
from fleetui.apimachinery.model import HUB_SEMANTICS, items_at, mapping_at
from fleetui.bulk import batched
from placements.explain.rollouts import DELETED
from placements.hubs.fleet_versions import write_newly_read
from placements.hubs.kinds.kubefleet import (
    PLACEMENT_GROUP,
    POLICY_INDEX,
    PREFIX,
    RESOURCE_INDEX,
)
from placements.hubs.projection.kinds import (
    BINDING_KINDS,
    PLACEMENT_KINDS,
    POLICY_KINDS,
    RESOURCE_KINDS,
    RUN_KINDS,
)
from placements.hubs.projection.rows import (
    HUB,
    HubDocument,
    HubMoment,
    RowKind,
    WrittenRow,
    save_marks,
    understood,
)
from placements.manifests.binding import BindingState
from placements.manifests.disruption import parse_eviction
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType, parse_policy
from placements.models import (
    Binding,
    DueJudgement,
    Eviction,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    Rollout,
)
from placements.services.results import PLACEMENT
from placements.services.snapshots import hash_of, placement_columns

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

    parse = staticmethod(parse_placement)

    def set_columns(self, row: Placement, document: HubDocument, parsed: Any) -> None:
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

    def change(self, before: Placement, row: Placement) -> None:
        if row.document == before.document:
            row.updated_at = before.updated_at
        row.hub_changes += 1
        row.observe_rollout = True

    def follow(self, written: Sequence[WrittenRow[Placement]]) -> None:
        added = []
        restarted = []
        for row in written:
            name = row.document.full_name
            before = row.before
            if before is None:
                added.append(name)
            elif started(before) != started(row.row):
                restarted.append(name)
        mark_children(added, kinds=CHILD_KINDS)
        # Whether a binding has started follows from the condition of its placement, too.
        mark_children(restarted, kinds=BINDING_KINDS)
        # The status, which may be all that changed, lists the objects of the resource snapshot.
        mark_children(
            [document.full_name for document in self.documents], kinds=RESOURCE_KINDS
        )
        mark_due([row.row.pk for row in written], now=self.moment.now)
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
    names = {document.row.owner for document in documents}
    rows = Placement.objects.filter(full_name__in=names).defer("document")
    placements = {row.full_name: row for row in rows}
    for document in documents:
        if document.row.owner not in placements and not document.row.is_deleting:
            document.error = NO_PLACEMENT
    return placements


def placement_keys(documents: Sequence[HubDocument]) -> dict[str, int]:
    """Return the primary keys of the placements that these objects name, by full name."""
    rows = Placement.objects.filter(
        full_name__in={document.row.owner for document in documents}
    )
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
        Rollout.objects.filter(placement__in=part, state=Rollout.State.RUNNING).update(
            state=Rollout.State.STOPPED, ended_at=now, ended_reason=DELETED
        )
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


NO_NUMBER = "its number is not understood"
_HASH = f"{PREFIX}resource-hash"
_INDEX = dict.fromkeys(POLICY_KINDS, POLICY_INDEX) | dict.fromkeys(
    RESOURCE_KINDS, RESOURCE_INDEX
)
NUMBER_OF_CLUSTERS = f"{PREFIX}number-of-clusters"

Snapshot: TypeAlias = PolicySnapshot | ResourceSnapshot
Columns: TypeAlias = dict[str, Any]


def project_policy_snapshots(
    documents: Sequence[HubDocument], moment: HubMoment
) -> None:
    owners = _project(PolicySnapshot, documents, lambda _placement: _policy_columns)
    mark_due([placement.pk for placement in owners], now=moment.now)


def project_resource_snapshots(
    documents: Sequence[HubDocument], _moment: HubMoment
) -> None:
    """Write resource snapshots; of the one that the placement observes, the objects are known as well."""
    masters = [hub_document for hub_document in documents if _is_master(hub_document)]
    names = {master.row.owner for master in masters}
    rows = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind__in=PLACEMENT_KINDS, owner__in=names
    )
    observed = {
        row.owner: mapping_at(HubDocument.of(row).content, "status") for row in rows
    }

    def columns(placement: Placement) -> Callable[[HubDocument], Columns]:
        return lambda document: _resource_columns(
            document, observed.get(placement.full_name, {})
        )

    _project(ResourceSnapshot, masters, columns)


def _is_master(document: HubDocument) -> bool:
    """Return whether an object is a snapshot, not a further part of its content."""
    annotations = mapping_at(document.content, "metadata", "annotations")
    return _HASH in annotations or document.row.name.endswith("-snapshot")


def _project(
    model: type[PolicySnapshot] | type[ResourceSnapshot],
    documents: Sequence[HubDocument],
    columns_for: Callable[[Placement], Callable[[HubDocument], Columns | None]],
) -> Collection[Placement]:
    """Write the snapshots of all placements that these belong to: which is the latest depends on all."""
    owners = placements_of(documents)
    changed = {document.row.pk: document for document in documents}
    kind = documents[0].row.kind if documents else ""
    rows = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind=kind, owner__in=list(owners)
    )
    siblings = grouped(
        (row.owner, changed.get(row.pk) or HubDocument.of(row))
        for row in rows.order_by("number", "name")
    )
    for owner, placement in owners.items():
        snapshots = [
            sibling
            for sibling in siblings.get(owner, [])
            if model is PolicySnapshot or _is_master(sibling)
        ]
        _write(model, placement, snapshots, columns_for(placement))
        save_marks(snapshots)
    return owners.values()


def _write(
    model: type[PolicySnapshot] | type[ResourceSnapshot],
    placement: Placement,
    documents: Sequence[HubDocument],
    columns_of: Callable[[HubDocument], Columns | None],
) -> None:
    by_number = columns_by_number(documents, columns_of)
    gone = model._default_manager.filter(placement=placement)
    _release(
        list(gone.exclude(number__in=by_number).values_list("pk", flat=True)), model
    )
    written = write_numbered(model, {"placement": placement}, by_number)
    if any(
        before is None or before.is_latest != is_latest for before, is_latest in written
    ):
        mark_children([placement.full_name], kinds=(*BINDING_KINDS, *RUN_KINDS))
    if written:
        Placement.objects.filter(pk=placement.pk).update(observe_rollout=True)


def write_numbered(
    model: Any, place: Mapping[str, Any], by_number: Mapping[int, Columns]
) -> list[tuple[Any, bool]]:
    """Write the snapshots of one object where they differ.

    Return of each what it was before, None for a new one, and whether it is the latest now.
    """
    there = {row.number: row for row in model.objects.filter(**place)}
    written = []
    # The former latest first: one of an object is the latest at any time.
    for number in sorted(by_number, key=lambda one: bool(by_number[one]["is_latest"])):
        before = there.get(number)
        columns = by_number[number]
        if before is None:
            model.objects.create(**place, number=number, created_by="", **columns)
        elif any(getattr(before, key) != value for key, value in columns.items()):
            model.objects.filter(pk=before.pk).update(**columns)
        else:
            continue
        written.append((before, columns["is_latest"]))
    return written


def columns_by_number(
    documents: Sequence[HubDocument],
    columns_of: Callable[[HubDocument], Columns | None],
) -> dict[int, Columns]:
    """Return the columns of the snapshots of one object by number; one of them at most is the latest."""
    by_number: dict[int, Columns] = {}
    latest: tuple[int, HubDocument] | None = None
    for document in documents:
        number = document.row.number
        if number is None:
            if document.row.kind in _INDEX:
                document.reject(f"metadata.labels.{_INDEX[document.row.kind]}")
            document.error = NO_NUMBER
            continue
        columns = columns_of(document)
        if columns is None:
            continue
        by_number[number] = {
            **columns,
            "created_at": document.created_at,
            "is_latest": False,
        }
        if document.row.is_latest:
            if latest:
                latest[1].error = document.error = (
                    "two snapshots are marked as the latest: the controller of the hub stops here"
                )
            latest = number, document
    if latest:
        by_number[latest[0]]["is_latest"] = True
    return by_number


def policy_of(document: HubDocument) -> dict[str, Any] | None:
    """Return the policy of a snapshot; the hub keeps the number of clusters in an annotation beside it."""
    policy = document.spec.get("policy")
    if not isinstance(policy, Mapping):
        return policy
    number = mapping_at(document.content, "metadata", "annotations").get(
        NUMBER_OF_CLUSTERS
    )
    if policy.get("placementType") != PlacementType.PICK_N or number is None:
        return dict(policy)
    is_number = isinstance(number, str) and number.isdecimal()
    return {**policy, "numberOfClusters": int(number) if is_number else number}


def _policy_columns(document: HubDocument) -> Columns | None:
    """Return the policy as it is stored; None for one that is not understood."""
    stored = policy_of(document)
    if stored and stored.get("placementType") == PlacementType.PICK_N:
        stored.setdefault("numberOfClusters", 0)  # which is not part of what is stored
    try:
        policy = parse_policy(stored, semantics=HUB_SEMANTICS, path="spec.policy")
    except InvalidManifest as invalid:
        for error in invalid.errors:
            document.reject(error.path)
        document.error = "the policy is not understood"
        return None
    content = {
        "policy": policy.without_number(),
        "semantics": HUB_SEMANTICS,
        "options": {},
    }
    return {**content, "content_hash": hash_of(content)}


def _resource_columns(document: HubDocument, status: Mapping[str, Any]) -> Columns:
    annotations = document.texts("metadata", "annotations")
    selected = items_at(status, "selectedResources")
    is_observed = str(status.get("observedResourceIndex")) == str(document.row.number)
    identities = [_identity(mapping_at(one)) for one in selected] if is_observed else []
    return {
        "content_hash": annotations.get(_HASH, "")[:64],
        "identities": identities,
        "objects_count": len(identities),
    }


def _identity(one: Mapping[str, Any]) -> list[str]:
    keys = ("group", "version", "kind", "namespace", "name")
    group, version, *names = (str(one.get(key) or "") for key in keys)
    return [api_version_of(group, version), *names]


def _release(
    pks: Sequence[int], model: type[PolicySnapshot] | type[ResourceSnapshot]
) -> None:
    """Delete snapshots that the hub has no more; bindings may still name them, or wait for the latest."""
    if not pks:
        return
    rows = model._default_manager.filter(pk__in=pks)
    mark_children(
        list(rows.values_list("placement__full_name", flat=True)), kinds=BINDING_KINDS
    )
    column = "policy_snapshot" if model is PolicySnapshot else "resource_snapshot"
    Binding.objects.filter(**{f"{column}__in": pks}).update(**{column: None})
    rows.delete()


def remove_snapshots(
    model: type[PolicySnapshot] | type[ResourceSnapshot],
    kinds: Sequence[str],
    _moment: HubMoment,
) -> int:
    """Delete the snapshots that the mirror has no more; of two latest ones another may be the latest now."""
    mirrored = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP,
        kind__in=kinds,
        owner=OuterRef("placement__full_name"),
        number=OuterRef("number"),
    )
    rows = model._default_manager.filter(~Exists(mirrored))
    gone = dict(rows.values_list("pk", "placement__full_name"))
    _release(list(gone), model)
    mark_children(set(gone.values()), kinds=kinds)
    return len(gone)
