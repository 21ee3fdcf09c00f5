"""Whether anything waits for a worker: only then does it matter that none answers."""

from datetime import datetime

from django.db.models import F, Min, Q

from placements.models import Placement


def waiting_since() -> datetime | None:
    """Give since when, at the longest, a placement waits to be decided or carried out; None where none does.

    A placement does not keep when it was asked: it was not before its last change.
    """
    is_due = Q(answered__lt=F("asked")) | Q(advance_answered__lt=F("advance_asked"))
    waiting = Placement.objects.filter(is_due | Q(advance_at__isnull=False))
    found: datetime | None = waiting.aggregate(at=Min("updated_at"))["at"]
    return found
