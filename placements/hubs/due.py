"""Marks that the decision of a placement of a live hub is to be recorded (`rules/live-hub.md#replays`)."""

from collections.abc import Collection
from datetime import datetime, timedelta

from fleetui.bulk import batched
from placements.models import DueJudgement, Placement

QUIET = timedelta(seconds=3)
"""How long nothing changes before a decision is recorded: the hub may be in the middle of its cycles."""
LONGEST_WAIT = timedelta(seconds=60)


def mark_due(placements: Collection[int], *, now: datetime) -> None:
    """Schedule the recording of these decisions, a minute after the first change at the latest.

    The caller holds the lock of the fleet, as all that mark do.
    """
    for part in batched(sorted(placements)):
        rows = [
            DueJudgement(placement_id=pk, changed_at=now, due_at=now + QUIET)
            for pk in part
        ]
        DueJudgement.objects.bulk_create(rows, ignore_conflicts=True)
        recent = DueJudgement.objects.filter(
            placement__in=part, changed_at__gt=now - LONGEST_WAIT + QUIET
        )
        recent.update(due_at=now + QUIET)


def mark_named(names: Collection[str], *, now: datetime) -> None:
    for part in batched(sorted(names)):
        mark_due(
            list(
                Placement.objects.filter(full_name__in=part).values_list(
                    "pk", flat=True
                )
            ),
            now=now,
        )
