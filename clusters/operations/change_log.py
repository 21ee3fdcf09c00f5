"""Counters of the fleet, and the log of changes that placements are rescheduled for."""

from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic, sleep

from django.conf import settings
from django.db import connection
from django.db.models import F, Max
from django.utils import timezone

from clusters.models import ClusterTombstone, FleetChange, FleetState, MemberCluster
from fleetui.bulk import BATCH_SIZE, batched
from fleetui.hub_scope import current_hub_id
from fleetui.task_queue import enqueue

FLEET_CHANGED = "placements.tasks.fleet_changed"
_FLEET_LOCK = 0xF1EE7
"""With the hub, the key of an advisory lock."""
_EXCLUSIVE = "SELECT pg_advisory_xact_lock(%s, %s)"
_SHARED = "SELECT pg_advisory_xact_lock_shared(%s, %s)"
_SHARED_NOW = "SELECT pg_try_advisory_xact_lock_shared(%s, %s)"
_HOLDER_WAITS = (
    "SELECT EXISTS (SELECT FROM pg_locks AS held JOIN pg_locks AS waiting USING (pid) "
    "WHERE held.classid = %s AND held.objid = %s AND held.mode = 'ExclusiveLock' "
    "AND held.granted AND NOT waiting.granted)"
)
_MOMENT = 0.02
_PATIENCE = 1.0
"""Seconds that a transaction that holds other rows waits for the fleet: in any case, and at most."""


@dataclass(frozen=True, slots=True)
class ChangeLogEntry:
    """What one operation changed in the fleet, as far as it can affect placements."""

    reason: str
    label_keys: Collection[str] = field(default_factory=frozenset)
    property_names: Collection[str] = field(default_factory=frozenset)
    opens: bool = False
    joins: bool = False
    gone: Collection[str] = field(default_factory=tuple)

    @property
    def moves_version(self) -> bool:
        return self.opens or bool(self.label_keys) or bool(self.gone)


def lock_fleet() -> FleetState:
    """Lock the fleet: its changes are written one after another, and never beside a decision on it.

    Requires a transaction. SQLite has one writer at a time anyway.
    """
    _lock(_EXCLUSIVE)
    state, _is_new = FleetState.objects.select_for_update().get_or_create()
    return state


def share_fleet() -> None:
    """Lock the fleet against changes, but not against other decisions on it; requires a transaction.

    PostgreSQL lets those who wait for an advisory lock have it in their order: decisions that follow one
    another cannot delay a change of the fleet, as they could with a lock of the row.
    """
    _lock(_SHARED)


def share_fleet_at_end() -> bool:
    """Lock the fleet as `share_fleet` does, for the commit alone; return False if it stays locked.

    For a transaction that holds other rows already. A change of the fleet may wait for these: when it waits
    for anything, this waits for a moment only. The foreign keys are checked before, as otherwise the commit
    does that.
    """
    if connection.vendor == "postgresql":
        connection.check_constraints()
    started = monotonic()
    while not _lock(_SHARED_NOW):
        waited = monotonic() - started
        if waited > _PATIENCE or (waited > _MOMENT and _lock(_HOLDER_WAITS)):
            return False
        sleep(_MOMENT / 10)
    return True


def _lock(statement: str) -> bool:
    """Return what a statement about the lock of the fleet returns; True where there are no such locks."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute(statement, [_FLEET_LOCK, current_hub_id()])
        return cursor.fetchone() != (False,)


def raise_counters(
    *, moves: bool, reads: bool, changed: Collection[int], removed: Collection[str] = ()
) -> int:
    """Increase the counters of the fleet; return the new sequence number, which what changed keeps.

    `changed` are the primary keys of changed and new clusters, `removed` the names of deleted ones: all that
    other processes will not see otherwise. The update of the one row of the fleet serializes these
    transactions, so sequence numbers are committed in order.
    """
    if not moves and not reads:
        return 0
    FleetState.objects.update(
        version=F("version") + int(moves),
        readings=F("readings") + int(reads),
        sequence=F("sequence") + 1,
    )
    sequence = FleetState.objects.values_list("sequence", flat=True).get()
    for pks in batched(list(changed), 10 * BATCH_SIZE):
        MemberCluster.objects.filter(pk__in=pks).update(changed_in=sequence)
    if removed:
        now = timezone.now()
        ClusterTombstone.objects.bulk_create(
            [
                ClusterTombstone(name=name, changed_in=sequence, deleted_at=now)
                for name in removed
            ],
            batch_size=BATCH_SIZE,
        )
        expired = ClusterTombstone.objects.filter(
            deleted_at__lt=now - settings.KEEP_TOMBSTONES
        )
        if last := expired.aggregate(last=Max("changed_in"))["last"]:
            expired.delete()
            FleetState.objects.update(tombstones_deleted_to=last)
    return sequence


def log_change(
    change: ChangeLogEntry, *, changed: Collection[int], removed: Collection[str] = ()
) -> None:
    """Increase the counters and enqueue the affected placements, in the transaction of the operation.

    `changed` and `removed` as for `raise_counters`.
    """
    if not change.moves_version and not change.property_names:
        return
    lock_fleet()
    sequence = raise_counters(
        moves=change.moves_version,
        reads=bool(change.property_names),
        changed=changed,
        removed=removed,
    )
    FleetChange.objects.create(
        sequence=sequence,
        joins=change.joins,
        label_keys=sorted(change.label_keys),
        property_names=sorted(change.property_names),
        opens=change.opens,
        gone=sorted(change.gone),
        reason=change.reason[:200],
    )
    enqueue(FLEET_CHANGED)
