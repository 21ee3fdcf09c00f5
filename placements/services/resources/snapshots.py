"""Resource snapshots: what a placement selects, copied when it changes (`rules/lifecycle.md#snapshots`)."""

from datetime import datetime

from django.db import transaction

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.audit import SYSTEM
from placements.engine.envelopes import wrapped_identities
from placements.engine.selection import content_hash, parts
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.manifests.strategy import StrategyType
from placements.models import Placement, ResourceSnapshot, ResourceSnapshotPart
from placements.services.pruning import prune_resource_snapshots
from placements.services.resources.queries import plain_objects, selection_of
from placements.services.workqueue import enqueue_rollout


class PlacementChanged(Exception):
    """The placement was changed, decided or deleted meanwhile."""


def refresh_resources(
    placement: Placement,
    *,
    now: datetime,
    manifest: ClusterResourcePlacement | None = None,
) -> bool:
    """Select the resources again if that is due; return whether the selectors are valid.

    No snapshot is created for a staged placement, whose runs do (`rules/lifecycle.md#snapshots`), nor for one
    that is pinned by a rollback (`rules/lifecycle.md#history`). Raise PlacementChanged: the selection of a
    slow worker must not be saved after a newer request. `manifest` is that of the placement, if it is parsed
    already.
    """
    if not placement.wants_resources:
        return not placement.selection_faults
    manifest = manifest or parse_placement(placement.document)
    try:
        selected = selection_of(manifest).objects
    except InvalidManifest as invalid:
        _save_selection(
            placement,
            [
                {"path": error.path, "code": error.code, "message": str(error)}
                for error in invalid.errors
            ],
            count=None,
        )
        return False
    with transaction.atomic():
        _save_selection(placement, [], count=len(selected))
        objects = plain_objects(selected)
        if manifest.spec.strategy.type is StrategyType.EXTERNAL:
            latest = placement.resource_snapshots.filter(is_latest=True).first()
            is_newer = latest is not None and latest.content_hash != content_hash(
                objects
            )
            Placement.objects.filter(pk=placement.pk).update(
                has_newer_resources=is_newer
            )
        elif placement.pinned_snapshot is None:
            take_resource_snapshot(
                placement, objects, by=placement.triggered_by or SYSTEM, now=now
            )
    return True


@transaction.atomic
def take_resource_snapshot(
    placement: Placement, objects: tuple[HubObject, ...], *, by: str, now: datetime
) -> ResourceSnapshot:
    """Freeze the selected objects, unless the latest snapshot has the same content."""
    if Placement.objects.select_for_update().get(pk=placement.pk).has_newer_resources:
        Placement.objects.filter(pk=placement.pk).update(has_newer_resources=False)
    latest = ResourceSnapshot.objects.filter(
        placement=placement, is_latest=True
    ).first()
    content = content_hash(objects)
    if latest and latest.content_hash == content:
        return latest
    number = 0
    if latest:
        number = latest.number + 1
        ResourceSnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    snapshot = ResourceSnapshot.objects.create(
        placement=placement,
        number=number,
        revision_number=placement.revision_with(number),
        content_hash=content,
        objects_count=len(objects),
        identities=[
            [
                hub_object.api_version,
                hub_object.kind,
                hub_object.namespace,
                hub_object.name,
            ]
            for hub_object in objects
        ],
        wrapped_identities=wrapped_identities(objects),
        created_at=now,
        created_by=by,
    )
    ResourceSnapshotPart.objects.bulk_create(
        ResourceSnapshotPart(
            snapshot=snapshot,
            position=part.index,
            manifests=[hub_object.content for hub_object in part.objects],
        )
        for part in parts(objects)
    )
    if latest:
        prune_resource_snapshots(placement)
    enqueue_rollout([placement.pk])
    return snapshot


def _save_selection(
    placement: Placement, errors: list[dict[str, str]], *, count: int | None
) -> None:
    unmoved = Placement.objects.filter(
        pk=placement.pk,
        revision=placement.revision,
        selection_observed=placement.selection_observed,
    )
    if not unmoved.update(
        selection_observed=placement.selection_generation,
        selection_faults=errors,
        selected_count=count,
    ):
        raise PlacementChanged
