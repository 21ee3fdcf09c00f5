"""Rescheduling of a placement; its present clusters no longer count, unless the semantics count them."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from clusters.queries import load_fleet
from fleetui.audit import AuditEvent, actor_name, record
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import PlacementType
from placements.models import Placement, PolicySnapshot
from placements.services.placements import check_decision_keeps_clusters
from placements.services.pruning import prune_policy_snapshots
from placements.services.results import PLACEMENT
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.scheduling import schedule_confirmed
from placements.services.snapshots import cycles_of
from placements.services.teams import locked_placement
from placements.services.workqueue import enqueue_scheduling


@transaction.atomic
def reschedule(
    name: str, *, by: User | None, now: datetime, expected: int | None = None, confirmed: bool = False
) -> Placement:
    """Reschedule a placement under the same policy; `disruption/restore.py` previews that.

    It gets a new policy snapshot with the content of the last, so that every binding becomes obsolete, as
    after a change of its policy: that is the one way a hub knows. The rollout moves it within its budgets.
    Raise UnknownPlacementError, RevisionConflict, ActionNotAllowed where there is nothing to reschedule, and
    UnschedulesEverything when no cluster would be picked and that is not confirmed.
    """
    placement = locked_placement(name, by=by, expected=expected)
    if refusal := reschedule_refusal(placement):
        raise ActionNotAllowed(refusal)
    if not confirmed and placement.bindings.exists():
        [(_, cycle)] = cycles_of([placement], load_fleet())
        check_decision_keeps_clusters(name, schedule(cycle.rescheduled()))

    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    latest.pk, latest.number = None, latest.number + 1
    latest.created_at, latest.created_by = now, actor_name(by)
    latest.save(force_insert=True)
    prune_policy_snapshots(placement)
    placement.revision += 1
    placement.save(update_fields=["revision"])
    record(AuditEvent("rescheduled", PLACEMENT, name, revision=placement.revision), by=by, now=now)
    enqueue_scheduling([placement.pk], trigger="rescheduled", by=actor_name(by))
    return placement


@transaction.atomic
def confirm_reschedule(
    name: str, *, decision_id: str, by: User | None, now: datetime, expected: int, confirmed: bool = False
) -> Placement:
    """Reschedule a placement as previewed or not at all. Raise as `reschedule`, and PreviewOutdatedError."""
    placement = reschedule(name, by=by, now=now, expected=expected, confirmed=True)
    schedule_confirmed(placement, decision_id, now=now, must_keep_clusters=not confirmed)
    return placement


def reschedule_refusal(placement: Placement) -> str:
    """Return why there is nothing to reschedule; empty where there is."""
    if placement.deleting_since is not None:
        return f"{placement.full_name} is being deleted; nothing to reschedule"
    if placement.placement_type == PlacementType.PICK_FIXED:
        return f"{placement.full_name} names its clusters; nothing to reschedule"
    return ""
