"""Policy and resource snapshots of a live hub (10.1)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from django.db.models import Exists, OuterRef

from clusters.models import MirroredObject
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import HUB_SEMANTICS, items_at, mapping_at
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
from placements.hubs.projection.placements import mark_children, mark_due, placements_of
from placements.hubs.projection.rows import HubDocument, HubMoment, save_marks
from placements.manifests.policy import PlacementType, parse_policy
from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot
from placements.services.snapshots import hash_of

TWO_LATEST = (
    "two snapshots are marked as the latest: the controller of the hub stops here"
)
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
    masters = [one for one in documents if _is_master(one)]
    names = {one.row.owner for one in masters}
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
    changed = {one.row.pk: one for one in documents}
    kind = documents[0].row.kind if documents else ""
    rows = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP, kind=kind, owner__in=list(owners)
    )
    siblings: dict[str, list[HubDocument]] = {}
    for row in rows.order_by("number", "name"):
        siblings.setdefault(row.owner, []).append(
            changed.get(row.pk) or HubDocument.of(row)
        )
    for owner, placement in owners.items():
        snapshots = [
            one
            for one in siblings.get(owner, [])
            if model is PolicySnapshot or _is_master(one)
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
    for one in documents:
        number = one.row.number
        if number is None:
            if one.row.kind in _INDEX:
                one.reject(f"metadata.labels.{_INDEX[one.row.kind]}")
            one.error = NO_NUMBER
            continue
        columns = columns_of(one)
        if columns is None:
            continue
        by_number[number] = {
            **columns,
            "created_at": one.created_at,
            "is_latest": False,
        }
        if one.row.is_latest:
            if latest:
                latest[1].error = one.error = TWO_LATEST
            latest = number, one
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
    group = str(one.get("group") or "")
    version = str(one.get("version") or "")
    api_version = f"{group}/{version}" if group else version
    return [
        api_version,
        *(str(one.get(key) or "") for key in ("kind", "namespace", "name")),
    ]


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
