"""Resource snapshots: what a placement selects, frozen when it changes (`spec/lifecycle.md` B.3.2)."""

from datetime import datetime

from django.db import transaction

from fleetui.events import SYSTEM
from placements.models import Placement, ResourceSnapshot, ResourceSnapshotPart
from placements.operations.pruning import prune_resource_snapshots
from placements.operations.rollouts.asking import ask_to_advance
from placements.queries.hub import selection_for
from placements.scheduling.faults import Faults
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.hub.parts import content_hash, parts
from placements.scheduling.hub.sanitising import sanitised
from placements.standing import is_staged


class PlacementMovedError(Exception):
    """The placement was changed, decided or deleted meanwhile."""


def refresh_resources(placement: Placement, *, now: datetime) -> bool:
    """Select anew if that was asked for; tell whether the selectors are without fault.

    A staged placement makes no snapshot here: its runs do (lifecycle A.7, B.3.2); nor does one that a
    rollback holds (A.9). Raises PlacementMovedError: what a slow worker selected must not follow what was
    asked for meanwhile.
    """
    if not placement.wants_resources:
        return not placement.selection_faults
    try:
        selected = selection_for(placement).objects
    except Faults as found:
        faults = [{"path": one.path, "code": one.code, "message": str(one)} for one in found.faults]
        _note(placement, faults)
        return False
    with transaction.atomic():
        _note(placement, [])
        if not is_staged(placement) and placement.held_number is None:
            take_resource_snapshot(placement, tuple(map(sanitised, selected)), by=SYSTEM, now=now)
    return True


@transaction.atomic
def take_resource_snapshot(
    placement: Placement, objects: tuple[HubObject, ...], *, by: str, now: datetime
) -> ResourceSnapshot:
    """Freeze the selected objects, unless the latest snapshot has the same content."""
    Placement.objects.select_for_update().get(pk=placement.pk)
    latest = ResourceSnapshot.objects.filter(placement=placement, is_latest=True).first()
    content = content_hash(objects)
    if latest and latest.content_hash == content:
        return latest
    ResourceSnapshot.objects.filter(placement=placement, is_latest=True).update(is_latest=False)
    snapshot = ResourceSnapshot.objects.create(
        placement=placement,
        number=latest.number + 1 if latest else 0,
        content_hash=content,
        objects_count=len(objects),
        identities=[[one.api_version, one.kind, one.namespace, one.name] for one in objects],
        created_at=now,
        created_by=by,
    )
    ResourceSnapshotPart.objects.bulk_create(
        ResourceSnapshotPart(
            snapshot=snapshot, position=part.index, manifests=[one.content for one in part.objects]
        )
        for part in parts(objects)
    )
    prune_resource_snapshots(placement)
    ask_to_advance([placement.pk])
    return snapshot


def _note(placement: Placement, faults: list[dict[str, str]]) -> None:
    unmoved = Placement.objects.filter(
        pk=placement.pk, revision=placement.revision, resources_answered=placement.resources_answered
    )
    if not unmoved.update(resources_answered=placement.resources_asked, selection_faults=faults):
        raise PlacementMovedError
