"""Work that is due; only then does a missing worker heartbeat matter."""

from datetime import datetime

from django.db.models import F, Min, Q

from placements.models import Binding, Placement

IS_DUE = Q(observed_generation__lt=F("generation")) | Q(rollout_observed__lt=F("rollout_generation"))


def waiting_since() -> datetime | None:
    """Return the longest possible time since when scheduling or a rollout is due; None if nothing is due.

    A placement does not store when it became due, which was not before its last change.
    """
    waiting = Placement.objects.filter(IS_DUE | Q(rollout_requeue_at__isnull=False))
    found: datetime | None = waiting.aggregate(at=Min("updated_at"))["at"]
    return found


def count_waiting(*, now: datetime) -> int:
    """Return how many placements wait for a decision or a sync, and how many calls to clusters are due."""
    calls = Binding.objects.filter(next_call_at__lte=now, call_lease_expires_at=None)
    return Placement.objects.filter(IS_DUE).count() + calls.count()
