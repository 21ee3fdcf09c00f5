"""Enqueueing of scheduling cycles and rollout syncs: a mark on the placement, and a hint to the workers."""

from collections.abc import Iterable
from typing import Any

from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Concat, Left

from fleetui.audit import SYSTEM
from fleetui.bulk import batched
from fleetui.task_queue import enqueue
from placements.models import Placement

SCHEDULE_DUE = "placements.tasks.schedule_due"
_LONGEST_TRIGGER = 200


def enqueue_scheduling(
    placements: Iterable[int], *, trigger: str, by: str = SYSTEM, resources: bool = False
) -> int:
    """Mark placements as due and enqueue their scheduling; return how many.

    `resources`: the resources have to be selected again, too.
    """
    ids = list(placements)
    columns: dict[str, Any] = {"generation": F("generation") + 1, **_cause(trigger, by)}
    if resources:
        columns["selection_generation"] = F("selection_generation") + 1
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(**columns)
    if ids:
        enqueue(SCHEDULE_DUE)
    return len(ids)


def _cause(trigger: str, by: str) -> dict[str, Any]:
    """Return the columns of a cause; while a cycle is due, the causes before it and their user are kept."""
    is_due = Q(observed_generation__lt=F("generation")) & ~Q(trigger="")
    both = Left(Concat("trigger", Value("; "), Value(trigger)), _LONGEST_TRIGGER)
    several = Case(
        When(is_due & Q(trigger__contains=trigger), then=F("trigger")),
        When(is_due, then=both),
        default=Value(trigger[:_LONGEST_TRIGGER]),
    )
    user = Case(When(is_due & ~Q(triggered_by=SYSTEM), then=F("triggered_by")), default=Value(by))
    return {"trigger": several, "triggered_by": user if by == SYSTEM else by}


ADVANCE_DUE = "placements.tasks.sync_due_rollouts"
CARRY_OUT_DUE = "placements.tasks.run_cluster_calls"


def enqueue_rollout(placements: Iterable[int], *, trigger: str = "", by: str = SYSTEM) -> None:
    """Mark the rollouts of placements as due and enqueue their sync; `trigger` if they may need a new one."""
    ids = sorted(set(placements))
    cause = _cause(trigger, by) if trigger else {}
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(rollout_generation=F("rollout_generation") + 1, **cause)
    if ids:
        enqueue(ADVANCE_DUE)
