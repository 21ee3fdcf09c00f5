"""Work that is due; only then does a missing worker heartbeat matter."""

from datetime import datetime

from django.db.models import F, Min, Q

from placements.models import Placement


def waiting_since() -> datetime | None:
    """Return the longest possible time since when scheduling or a rollout is due; None if nothing is due.

    A placement does not store when it became due, which was not before its last change.
    """
    is_due = Q(observed_generation__lt=F("generation")) | Q(rollout_observed__lt=F("rollout_generation"))
    waiting = Placement.objects.filter(is_due | Q(rollout_requeue_at__isnull=False))
    found: datetime | None = waiting.aggregate(at=Min("updated_at"))["at"]
    return found
