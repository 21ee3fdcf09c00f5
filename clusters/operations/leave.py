"""Removal of clusters from the fleet; their workloads stay (`rules/lifecycle.md#member-clusters`)."""

from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from clusters.credentials import credential_of
from clusters.driver_factory import driver_for
from clusters.drivers.concurrency import call_all
from clusters.drivers.registry import DRIVERS
from clusters.health import leaving
from clusters.kubernetes_drivers import hub_id
from clusters.models import MemberCluster, Membership
from clusters.operations.change_log import ChangeLogEntry, lock_fleet, log_change
from clusters.operations.credentials import remove_secret
from clusters.operations.edit import UnknownClusterError
from clusters.operations.identity import remember_former
from clusters.operations.join import CLUSTER
from fleetui.audit import AuditEvent, actor_name, record_all
from fleetui.concurrency import check_revision
from fleetui.threads import close_connections

LONGEST_LEAVE = timedelta(minutes=15)
_THREADS = 32
_SECONDS = 15.0
_SECONDS_EACH = 5.0


@transaction.atomic
def leave(
    names: Collection[str],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> list[MemberCluster]:
    """Start the removal of clusters from the fleet; return those that were not leaving already.

    Raises UnknownClusterError, RevisionConflict.
    """
    lock_fleet()
    rows = {row.name: row for row in MemberCluster.objects.filter(name__in=names)}
    for name in names:
        if name not in rows:
            raise UnknownClusterError(name)
        check_revision(CLUSTER, name, expected=expected, revision=rows[name].revision)
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
    events = [
        AuditEvent(
            "leaving", CLUSTER, row.name, revision=row.revision + 1, before=row.document
        )
        for row in going
    ]
    record_all(events, by=by, now=now)
    log_change(
        ChangeLogEntry(
            _reason([row.name for row in going], "leaving", by),
            gone=[row.name for row in going],
        ),
        changed=[row.pk for row in going],
    )
    return going


def finish_leaving(*, now: datetime) -> list[str]:
    """Remove the clusters whose agents confirmed, the others after 15 minutes; return their names."""
    rows = MemberCluster.objects.filter(membership=Membership.LEAVING)
    candidates = list(rows.select_related("credential"))
    hub_id()  # read once here: the threads of the calls use no database
    reachable = {row.pk: row for row in candidates if row.driver in DRIVERS}
    calls = {pk: partial(notify_cluster, row) for pk, row in reachable.items()}
    answers = call_all(
        calls,
        threads=_THREADS,
        seconds=_SECONDS,
        patience=_SECONDS_EACH,
        at_end=close_connections,
    )
    confirmed = {pk for pk, answer in answers if answer is True}
    confirmed |= {row.pk for row in candidates if row.pk not in reachable}
    away = [
        row
        for row in candidates
        if row.pk in confirmed or now - (row.leaving_since or now) >= LONGEST_LEAVE
    ]
    if away:
        forget(away, verb="left", by=None, now=now)
    return [row.name for row in away]


@transaction.atomic
def forget(
    rows: Collection[MemberCluster],
    *,
    verb: str,
    by: User | None,
    now: datetime,
) -> None:
    """Remove clusters from the fleet immediately; those that are no longer there are skipped."""
    lock_fleet()
    there = MemberCluster.objects.filter(pk__in=[row.pk for row in rows])
    rows = list(there.select_related("credential"))
    if not rows:
        return
    removed = [
        event
        for row in rows
        for event in remove_secret(row, credential_of(row), by=by, now=now)
    ]
    there.delete()
    remember_former(rows, now=now)
    events = [
        AuditEvent(
            verb, CLUSTER, row.name, revision=row.revision + 1, before=row.document
        )
        for row in rows
    ]
    record_all([*events, *removed], by=by, now=now)
    names = [row.name for row in rows]
    log_change(
        ChangeLogEntry(_reason(names, verb, by), opens=True, gone=names),
        changed=(),
        removed=names,
    )


def notify_cluster(row: MemberCluster) -> bool:
    driver_for(row).leave(timeout=_SECONDS_EACH)
    return True


def _reason(names: Collection[str], verb: str, by: User | None) -> str:
    user = f" by {actor_name(by)}" if by else ""
    return f"{next(iter(names)) if len(names) == 1 else f'{len(names)} clusters'} {verb}{user}"
