"""Work that is due, without which a missing worker heartbeat does not matter; messages that do not arrive."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Min, OuterRef, Q, QuerySet, Subquery

from clusters.models import NotificationChannel
from placements.models import Binding, NotificationDelivery, Placement

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


FAILING_AFTER = timedelta(minutes=5)
"""A channel that did not get a message for so long needs attention: a service that restarts does not."""


def channels_with_failures() -> QuerySet[Any]:
    """Return the channels that are on; `failing_since`: of the first message that failed after the last sent.

    It is null for a channel that works, and `last_error` says why its latest message failed.
    """
    of_channel = NotificationDelivery.objects.filter(channel=OuterRef("pk"))
    sent = of_channel.filter(state=NotificationDelivery.State.SENT).order_by("-sent_at")
    failed = of_channel.exclude(error="").order_by("-created_at", "-pk")
    states = (NotificationDelivery.State.PENDING, NotificationDelivery.State.FAILED)
    is_failing = Q(deliveries__state__in=states) & ~Q(deliveries__error="")
    is_later = Q(last_sent=None) | Q(deliveries__created_at__gt=F("last_sent"))
    rows = NotificationChannel.objects.filter(is_enabled=True)
    rows = rows.annotate(last_sent=Subquery(sent.values("sent_at")[:1]))
    since = Min("deliveries__created_at", filter=is_failing & is_later)
    return rows.annotate(failing_since=since, last_error=Subquery(failed.values("error")[:1])).order_by(
        "name"
    )
