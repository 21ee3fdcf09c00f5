"""Objects of a live hub that are not shown, or not completely: which, and why.

See `rules/live-hub.md#projection`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Count, Q, QuerySet

from clusters.hub_queries import across_hubs
from clusters.models import MirroredObject
from placements.hubs.projection.placements import NO_PLACEMENT
from placements.hubs.projection.staged_runs import NO_RUN

PATIENCE = timedelta(hours=1)
"""For which an object may wait for the one that it belongs to: streams arrive in any order."""


def unresolved_objects(*, now: datetime) -> QuerySet[MirroredObject]:
    """Return the unresolved objects of the hub in scope, without their content; unordered."""
    rows = MirroredObject.objects.filter(is_unresolved=True).exclude(_is_early(now))
    return rows.only(
        "group", "kind", "namespace", "name", "not_understood", "projection_error"
    )


def unresolved_counts(hubs: Sequence[int], *, now: datetime) -> dict[int, int]:
    with across_hubs():
        rows = MirroredObject.objects.filter(is_unresolved=True, hub__in=hubs).exclude(
            _is_early(now)
        )
        return dict(rows.order_by().values_list("hub").annotate(count=Count("pk")))


def _is_early(now: datetime) -> Q:
    return Q(projection_error__in=(NO_PLACEMENT, NO_RUN), changed_at__gt=now - PATIENCE)
