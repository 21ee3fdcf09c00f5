"""Rescheduling a placement from scratch: what is placed no longer counts, except that it wins ties."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import SYSTEM, Happening, record
from fleetui.revisions import refuse_stale
from placements.models import Placement, PolicySnapshot
from placements.operations.as_seen import decide_as_seen
from placements.operations.asking import ask
from placements.operations.emptying import refuse_emptying
from placements.operations.placements import PLACEMENT, UnknownPlacementError
from placements.operations.pruning import prune_policy_snapshots
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.fresh import from_scratch
from placements.scheduling.policy import PlacementType


@transaction.atomic
def reschedule(
    name: str, *, by: User | None, now: datetime, expected: int | None = None, confirmed: bool = False
) -> Placement:
    """Decide a placement from scratch, under the same policy; `queries/fresh.py` says what that would do.

    It gets a new policy snapshot with the content of the last, so that every binding becomes obsolete, as
    after a change of its policy: that is the one way a hub knows. The rollout moves it within its budgets.
    Raises UnknownPlacementError, StaleEditError, HandRefusedError where there is nothing to decide, and
    EmptiesPlacementError when no cluster would be picked and nobody confirmed that.
    """
    placement = Placement.objects.select_for_update().filter(name=name).first()
    if placement is None:
        raise UnknownPlacementError(name)
    refuse_stale(PLACEMENT, name, expected=expected, revision=placement.revision)
    _refuse(placement)
    if not confirmed:
        refuse_emptying(placement, from_scratch)
    _obsolete_all(placement, by=by, now=now)
    placement.revision += 1
    placement.save(update_fields=["revision"])
    record(Happening("rescheduled", PLACEMENT, name, revision=placement.revision), by=by, now=now)
    ask([placement.pk], because="rescheduled from scratch", by=_name_of(by))
    return placement


@transaction.atomic
def reschedule_as_seen(
    name: str, *, decision_id: str, by: User | None, now: datetime, expected: int, confirmed: bool = False
) -> Placement:
    """Decide a placement from scratch as its preview said: all of it or nothing.

    The steps are those of a worker. Raises what `reschedule` does, and PreviewOutdatedError.
    """
    placement = reschedule(name, by=by, now=now, expected=expected, confirmed=confirmed)
    decide_as_seen(placement, decision_id, now=now)
    return placement


def reschedule_refusal(placement: Placement) -> str:
    """Say why there is nothing to decide from scratch; empty where there is."""
    if placement.deleting_since is not None:
        return f"{placement.name} is being deleted; there is nothing to reschedule"
    if placement.placement_type == PlacementType.PICK_FIXED:
        return f"{placement.name} names its clusters; there is nothing to choose anew"
    return ""


def _refuse(placement: Placement) -> None:
    if refusal := reschedule_refusal(placement):
        raise HandRefusedError(refusal)


def _obsolete_all(placement: Placement, *, by: User | None, now: datetime) -> None:
    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    latest.pk, latest.number = None, latest.number + 1
    latest.created_at, latest.created_by = now, _name_of(by)
    latest.save(force_insert=True)
    prune_policy_snapshots(placement)


def _name_of(user: User | None) -> str:
    return user.get_username() if user else SYSTEM
