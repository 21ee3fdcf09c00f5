"""Clusters leave the fleet; what is placed on them stays there (`spec/lifecycle.md` B.8.3)."""

from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.registry import DRIVERS, driver_for
from clusters.models import MemberCluster, Membership
from clusters.operations.editing import UnknownClusterError
from clusters.operations.fleet_changes import Change, lock_fleet, note
from clusters.operations.joining import CLUSTER
from fleetui.events import Happening, record_all
from fleetui.revisions import refuse_stale
from placements.scheduling.agent import leaving

LONGEST_FAREWELL = timedelta(minutes=15)


@transaction.atomic
def leave(
    names: Collection[str], *, by: User | None, now: datetime, expected: int | None = None
) -> list[MemberCluster]:
    """Send clusters out of the fleet; those that are leaving already go on. Gives those that now begin to.

    Raises UnknownClusterError, StaleEditError.
    """
    lock_fleet()
    rows = {row.name: row for row in MemberCluster.objects.filter(name__in=names)}
    for name in names:
        if name not in rows:
            raise UnknownClusterError(name)
        refuse_stale(CLUSTER, name, expected=expected, revision=rows[name].revision)
    going = [row for row in rows.values() if row.membership != Membership.LEAVING]
    verdict = leaving()
    MemberCluster.objects.filter(pk__in=[row.pk for row in going]).update(
        membership=Membership.LEAVING,
        leaving_since=now,
        verdict=verdict.kind,
        verdict_reason=verdict.reason,
        verdict_since=now,
        revision=F("revision") + 1,
    )
    happenings = [
        Happening("leaving", CLUSTER, row.name, revision=row.revision + 1, before=row.document)
        for row in going
    ]
    record_all(happenings, by=by, now=now)
    note(Change(_reason([row.name for row in going], "leaving"), gone=[row.name for row in going]))
    return going


def finish_leaving(*, now: datetime) -> list[str]:
    """Take out of the fleet who said farewell, and after 15 minutes who cannot; gives their names."""
    candidates = MemberCluster.objects.filter(membership=Membership.LEAVING)
    away = [row for row in candidates if _said_farewell(row) or now - _begun(row, now) >= LONGEST_FAREWELL]
    if away:
        forget(away, verb="left", by=None, now=now)
    return [row.name for row in away]


@transaction.atomic
def forget(rows: Collection[MemberCluster], *, verb: str, by: User | None, now: datetime) -> None:
    """Take clusters out of the fleet at once; those that are gone already were somebody else's doing."""
    lock_fleet()
    there = MemberCluster.objects.filter(pk__in=[row.pk for row in rows])
    rows = list(there)
    if not rows:
        return
    there.delete()
    happenings = [
        Happening(verb, CLUSTER, row.name, revision=row.revision + 1, before=row.document) for row in rows
    ]
    record_all(happenings, by=by, now=now)
    note(Change(_reason([row.name for row in rows], verb), opens=True, gone=[row.name for row in rows]))


def _said_farewell(row: MemberCluster) -> bool:
    if row.driver not in DRIVERS:
        return True
    try:
        driver_for(row.driver, row.connection).leave()
    except DriverUnavailable:
        return False
    return True


def _begun(row: MemberCluster, now: datetime) -> datetime:
    return row.leaving_since or now


def _reason(names: Collection[str], verb: str) -> str:
    return f"{next(iter(names))} {verb}" if len(names) == 1 else f"{len(names)} clusters {verb}"
