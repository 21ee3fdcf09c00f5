"""Enqueueing of scheduling cycles and rollout syncs: a mark on the placement, and a hint to the workers."""

from collections.abc import Iterable

from django.db.models import F

from fleetui.audit import SYSTEM
from fleetui.bulk import batched
from fleetui.task_queue import enqueue
from placements.models import Placement

SCHEDULE_DUE = "placements.tasks.schedule_due"


def enqueue_scheduling(
    placements: Iterable[int], *, trigger: str, by: str = SYSTEM, resources: bool = False
) -> int:
    """Mark placements as due and enqueue their scheduling; return how many.

    `resources`: the resources have to be selected again, too.
    """
    ids = list(placements)
    selection = {"selection_generation": F("selection_generation") + 1} if resources else {}
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(
            generation=F("generation") + 1, trigger=trigger[:200], triggered_by=by, **selection
        )
    if ids:
        enqueue(SCHEDULE_DUE)
    return len(ids)


ADVANCE_DUE = "placements.tasks.sync_due_rollouts"
CARRY_OUT_DUE = "placements.tasks.run_cluster_calls"


def enqueue_rollout(placements: Iterable[int]) -> None:
    """Mark the rollouts of placements as due and enqueue their sync."""
    ids = sorted(set(placements))
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(rollout_generation=F("rollout_generation") + 1)
    if ids:
        enqueue(ADVANCE_DUE)
