"""Forgetting a cluster that a deletion cannot reach (`spec/lifecycle.md` A.11)."""

from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import Happening, record
from placements.models import Binding, Placement
from placements.operations.placements import PLACEMENT, UnknownPlacementError
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.hands import HandRefusedError
from placements.rollout.work import work_of
from placements.standing import standing_of


@transaction.atomic
def forget_cluster(placement: str, cluster: str, *, by: User | None, now: datetime) -> None:
    """Let a deletion end without a cluster that has been out of reach for 15 minutes.

    What is there may stay there; an event says so. Raises UnknownPlacementError, HandRefusedError.
    """
    row = Placement.objects.select_for_update().filter(name=placement).first()
    if row is None:
        raise UnknownPlacementError(placement)
    _refuse(row, cluster, now=now)
    Binding.objects.filter(placement=row, cluster_name=cluster).delete()
    after = {"cluster": cluster, "mayStillHold": [cluster]}
    record(Happening("forgotten", PLACEMENT, placement, after=after), by=by, now=now)
    ask_to_advance([row.pk])


def _refuse(row: Placement, cluster: str, *, now: datetime) -> None:
    if row.deleting_since is None:
        raise HandRefusedError(f"{row.name} is not being deleted; evict it from {cluster} instead")
    waiting = {one.cluster: one for one in work_of(standing_of(row, now=now).state).waiting}
    found = waiting.get(cluster)
    if found is None or found.forgettable_from is None:
        raise HandRefusedError(
            f"{cluster} can be reached or holds nothing of {row.name}; there is nothing to forget"
        )
    if now < found.forgettable_from:
        moment = found.forgettable_from.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise HandRefusedError(f"{cluster} may come back; {row.name} can forget it from {moment} on")
