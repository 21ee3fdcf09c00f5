"""Asking for a look at a placement's rollout: a mark, and a hint to the workers."""

from collections.abc import Iterable

from django.db.models import F

from fleetui.wake import wake
from placements.models import Placement

ADVANCE_DUE = "placements.tasks.advance_due"
CARRY_OUT_DUE = "placements.tasks.carry_out_due"
_BATCH = 500


def ask_to_advance(placements: Iterable[int]) -> None:
    """Mark placements for a look at their rollouts, and wake a worker."""
    ids = sorted(set(placements))
    for start in range(0, len(ids), _BATCH):
        rows = Placement.objects.filter(pk__in=ids[start : start + _BATCH])
        rows.update(advance_asked=F("advance_asked") + 1)
    if ids:
        wake(ADVANCE_DUE)
