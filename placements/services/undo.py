"""Undo of an action on clusters: from the events that it recorded, and only what is still as it wrote it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Q

from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import undo_edits
from clusters.operations.join import CLUSTER
from fleetui.apimachinery.words import counted
from fleetui.audit import actor_name
from fleetui.bulk import batched
from fleetui.errors import FleetError
from fleetui.models import Event
from fleetui.permissions import FLEET, check_change
from fleetui.request_ids import with_request_id
from placements.models import DrainStep
from placements.services.disruption.drains import (
    cancel_drain,
    continue_drains,
    running_drains,
)

LONGEST = timedelta(hours=1)
"""How long after an action it can be undone."""
_MOST_REASONS = 5


class NothingToUndo(FleetError):
    """The user changed no clusters by this request, or too long ago."""

    def __init__(self) -> None:
        super().__init__("There is no change of yours from the last hour to undo here.")


@dataclass(frozen=True, slots=True)
class Undone:
    """The clusters of an action, and why something was not restored on some of them."""

    clusters: tuple[str, ...]
    reasons: dict[str, str]

    @property
    def message(self) -> str:
        left = [f"{name} ({reason})" for name, reason in self.reasons.items()]
        subject = (
            self.clusters[0]
            if len(self.clusters) == 1
            else counted(len(self.clusters), "cluster")
        )
        words = f"Change of {subject} undone." if self.clusters else "Nothing undone."
        if not left:
            return words
        more = len(left) - _MOST_REASONS
        return f"{words} Not restored: {', '.join(left[:_MOST_REASONS])}" + (
            f" and {more:,} more." if more > 0 else "."
        )


@transaction.atomic
def undo_change(request_id: str, *, by: User, now: datetime) -> Undone:
    """Undo what an action of this user changed on clusters, where it is still as the action wrote it.

    What a drain has evicted is not restored. Raise NotOfTeamError, NothingToUndo.
    """
    check_change(by, FLEET, what="these clusters")
    lock_fleet()
    mine = Event.objects.filter(
        actor=by, actor_name=actor_name(by), at__gte=now - LONGEST, at__lte=now
    )
    events = (
        list(mine.filter(kind=CLUSTER, request_id=request_id).order_by("pk"))
        if request_id
        else []
    )
    if not events:
        raise NothingToUndo
    names = list(dict.fromkeys(event.name for event in events))
    present: set[str] = set()
    for part in batched(names):
        present |= set(
            MemberCluster.objects.filter(name__in=part).values_list("name", flat=True)
        )
    reasons = {name: "has left the fleet" for name in names if name not in present}
    verbs: dict[str, dict[str, Event]] = {}
    for event in events:
        if event.name in present:
            verbs.setdefault(event.verb, {})[event.name] = event
    with with_request_id(uuid4().hex):
        how: Any = {"by": by, "now": now}
        reasons |= _undo_drains(verbs.get("drain started", {}), **how)
        cancelled = verbs.get("drain cancelled", {})
        kept = continue_drains(list(cancelled), ended_at=events[0].at, **how)
        reasons |= dict.fromkeys(kept, "is being drained or not cordoned any more")
        edits = {
            name: (event.before, event.after)
            for name, event in verbs.get("changed", {}).items()
        }
        reasons |= dict.fromkeys(
            undo_edits(edits, **how), "labels or taints changed since"
        )
    return Undone(tuple(name for name in names if name not in reasons), reasons)


def _undo_drains(
    started: dict[str, Event], *, by: User, now: datetime
) -> dict[str, str]:
    """Cancel the drains of these events that still run; return what of them is not restored, by cluster."""
    reasons = {}
    running = running_drains(list(started))
    evicted = _evicted_by([row.pk for row in running.values()])
    for name, event in started.items():
        row = running.get(name)
        if row is None or row.started_at != event.at:
            reasons[name] = "its drain has ended"
            running.pop(name, None)
        elif count := evicted.get(row.pk, 0):
            reasons[name] = f"{counted(count, 'placement')} evicted already"
    cancel_drain(list(running), by=by, now=now)
    return reasons


def _evicted_by(drains: list[int]) -> dict[int, int]:
    is_evicted = Q(
        state__in=(
            DrainStep.State.GONE,
            DrainStep.State.LEAVING,
            DrainStep.State.NEXT_RUN,
        )
    )
    counts: dict[int, int] = {}
    for part in batched(drains):
        steps = DrainStep.objects.filter(is_evicted, drain_id__in=part)
        counts |= dict(
            steps.order_by()
            .values("drain_id")
            .annotate(n=Count("pk"))
            .values_list("drain_id", "n")
        )
    return counts
