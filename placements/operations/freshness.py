"""Working out which picks are stale, and how far every placement is from its limits, now and then."""

from collections.abc import Collection
from datetime import datetime, timedelta
from time import perf_counter

from django.db import transaction
from django.db.models import F, Q, QuerySet

from clusters.queries import FleetView, counters, fleet_now
from placements.models import Freshness, Placement, StalePick
from placements.queries.headroom import Headroom, headroom_of
from placements.snapshots import cycles_of

EVERY = timedelta(seconds=30)
"""A fleet that changes all the time is looked at this often; a new decision at once."""
PIECE = 1.0
_BATCH = 5


def freshness_due(*, now: datetime) -> bool:
    """Tell whether a placement has to be looked at."""
    return _due(*counters(), now=now).exists()


def look_at_freshness(*, now: datetime) -> int:
    """Look at some placements that were decided anew, or whose fleet has changed; tell how many."""
    until, done = perf_counter() + PIECE, 0
    while perf_counter() < until:
        view = fleet_now()
        placements = list(_due(view.version, view.readings, now=now).order_by("pk")[:_BATCH])
        if not placements:
            break
        _look_at(placements, view, now=now)
        done += len(placements)
    return done


def _due(version: int, readings: int, *, now: datetime) -> QuerySet[Placement]:
    is_new = Q(freshness=None) | ~Q(freshness__decisions_made=F("decisions_made"))
    has_moved = ~Q(freshness__fleet_version=version)
    has_moved |= ~Q(property_names_read=[]) & ~Q(freshness__readings=readings)
    was_long_ago = Q(freshness__looked_at__lte=now - EVERY)
    decided = Placement.objects.filter(deleting_since=None, selection_faults=[], decisions_made__gt=0)
    return decided.filter(is_new | has_moved & was_long_ago)


def _look_at(placements: Collection[Placement], view: FleetView, *, now: datetime) -> None:
    for placement, cycle in cycles_of(placements, view.fleet):
        _write(placement, headroom_of(cycle), view, now=now)


@transaction.atomic
def _write(placement: Placement, found: Headroom, view: FleetView, *, now: datetime) -> None:
    row, _ = Freshness.objects.update_or_create(
        placement=placement,
        defaults={
            "fleet_version": view.version,
            "readings": view.readings,
            "decisions_made": placement.decisions_made,
            "looked_at": now,
            "headroom": found.least,
            "skews": [list(one) for one in found.skews],
        },
    )
    row.stale.all().delete()
    StalePick.objects.bulk_create(
        [StalePick(freshness=row, cluster_name=name) for name in found.stale], batch_size=500
    )
