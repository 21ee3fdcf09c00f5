"""Enqueueing of scheduling cycles and rollout syncs, work that is due, and messages that do not arrive.

Enqueueing is a mark on the placement, and a hint to the workers. Without work that is due a missing worker
heartbeat does not matter.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, F, Min, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Concat, Left

from clusters.models import NotificationChannel
from fleetui.audit import SYSTEM
from fleetui.bulk import batched
from fleetui.task_queue import enqueue
from placements.models import Binding, NotificationDelivery, Placement

SCHEDULE_DUE = "placements.tasks.schedule_due"
ADVANCE_DUE = "placements.tasks.sync_due_rollouts"
RUN_CLUSTER_CALLS = "placements.tasks.run_cluster_calls"
LONGEST_TRIGGER = 200
_FOR_A_HINT = 100
_MOST_HINTS = 4
"""Several workers start at once where there is work for them; with one hint the others wait for the sweep."""


DUE: Mapping[str, int] = {"generation": 1, "selection_generation": 1}
"""The columns of a new placement that is due."""


def enqueue_scheduling(
    placements: Iterable[int],
    *,
    trigger: str,
    by: str = SYSTEM,
    resources: bool = False,
    rollouts: bool = False,
) -> int:
    """Mark placements as due, and enqueue them; return how many.

    With `resources` what they select is due, too; with `rollouts` their rollouts are.
    """
    ids = list(placements)
    columns: dict[str, Any] = {"generation": F("generation") + 1, **_cause(trigger, by)}
    if resources:
        columns["selection_generation"] = F("selection_generation") + 1
    if rollouts:
        columns["rollout_generation"] = F("rollout_generation") + 1
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(**columns)
    for _hint in ids[: _MOST_HINTS * _FOR_A_HINT : _FOR_A_HINT]:
        enqueue(SCHEDULE_DUE)
    if ids and rollouts:
        enqueue(ADVANCE_DUE)
    return len(ids)


def _cause(trigger: str, by: str) -> dict[str, Any]:
    """Return the columns of a cause; while a cycle is due, the causes before it and their user are kept.

    The cause of the first cycle is that the placement was created, whatever else changes until then.
    """
    is_due = Q(observed_generation__lt=F("generation")) & ~Q(trigger="")
    both = Left(Concat("trigger", Value("; "), Value(trigger)), LONGEST_TRIGGER)
    several = Case(
        When(
            is_due & (Q(decisions_made=0) | Q(trigger__contains=trigger)),
            then=F("trigger"),
        ),
        When(is_due, then=both),
        default=Value(trigger[:LONGEST_TRIGGER]),
    )
    user = Case(
        When(is_due & ~Q(triggered_by=SYSTEM), then=F("triggered_by")),
        default=Value(by),
    )
    return {"trigger": several, "triggered_by": user if by == SYSTEM else by}


def enqueue_rollout(
    placements: Iterable[int], *, trigger: str = "", by: str = SYSTEM
) -> None:
    """Mark the rollouts of placements as due and enqueue their sync; `trigger` if they may need a new one."""
    ids = sorted(set(placements))
    cause = _cause(trigger, by) if trigger else {}
    for part in batched(ids):
        Placement.objects.filter(pk__in=part).update(
            rollout_generation=F("rollout_generation") + 1, **cause
        )
    if ids:
        enqueue(ADVANCE_DUE)


IS_DUE = Q(observed_generation__lt=F("generation")) | Q(
    rollout_observed__lt=F("rollout_generation")
)


def waiting_since() -> datetime | None:
    """Return the longest possible time since when scheduling or a rollout is due; None if nothing is due.

    A placement does not store when it became due, which was not before its last change.
    """
    waiting = Placement.objects.filter(IS_DUE | Q(rollout_requeue_at__isnull=False))
    since: datetime | None = waiting.aggregate(at=Min("updated_at"))["at"]
    return since


def count_waiting(*, now: datetime) -> int:
    """Return how many placements wait for a decision or a sync, and how many calls to clusters are due."""
    calls = Binding.objects.filter(next_call_at__lte=now, call_lease_expires_at=None)
    return Placement.objects.filter(IS_DUE).count() + calls.count()


FAILING_AFTER = timedelta(minutes=5)
"""A channel that did not get a message for so long needs attention: a service that restarts does not."""


def channels_with_failures() -> QuerySet[Any]:
    """Return the channels that are on; `failing_since`: of the first message that failed after the last sent.

    It is null for a channel that works, and `last_error` is the reason why its latest message failed.
    """
    of_channel = NotificationDelivery.objects.filter(channel=OuterRef("pk"))
    deliveries = of_channel.filter(state=NotificationDelivery.State.SENT).order_by(
        "-sent_at"
    )
    failed = of_channel.exclude(error="").order_by("-created_at", "-pk")
    states = (NotificationDelivery.State.PENDING, NotificationDelivery.State.FAILED)
    is_failing = Q(deliveries__state__in=states) & ~Q(deliveries__error="")
    is_later = Q(last_sent=None) | Q(deliveries__created_at__gt=F("last_sent"))
    rows = NotificationChannel.objects.filter(is_enabled=True)
    rows = rows.annotate(last_sent=Subquery(deliveries.values("sent_at")[:1]))
    since = Min("deliveries__created_at", filter=is_failing & is_later)
    return rows.annotate(
        failing_since=since, last_error=Subquery(failed.values("error")[:1])
    ).order_by("name")
