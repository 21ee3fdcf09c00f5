"""Asking for a scheduling cycle: a mark on the placement, and a hint to the workers."""

from collections.abc import Iterable

from django.db.models import F

from fleetui.events import SYSTEM
from fleetui.wake import wake
from placements.models import Placement

SCHEDULE_DUE = "placements.tasks.schedule_due"
_BATCH = 500


def ask(placements: Iterable[int], *, because: str, by: str = SYSTEM, resources: bool = False) -> int:
    """Mark placements as due, whatever they are doing now, and wake a worker; tell how many.

    `resources`: what they select has to be looked up anew as well.
    """
    ids = list(placements)
    anew = {"resources_asked": F("resources_asked") + 1} if resources else {}
    for start in range(0, len(ids), _BATCH):
        Placement.objects.filter(pk__in=ids[start : start + _BATCH]).update(
            asked=F("asked") + 1, asked_because=because[:200], asked_by=by, **anew
        )
    if ids:
        wake(SCHEDULE_DUE)
    return len(ids)
