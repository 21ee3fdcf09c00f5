"""Counters of the fleet, and the log of changes that placements are rescheduled for."""

from collections.abc import Collection
from dataclasses import dataclass, field

from django.db.models import F

from clusters.models import FleetChange, FleetState
from fleetui.task_queue import enqueue

FLEET_CHANGED = "placements.tasks.fleet_changed"


@dataclass(frozen=True, slots=True)
class ChangeLogEntry:
    """What one operation changed in the fleet, as far as it can affect placements."""

    reason: str
    label_keys: Collection[str] = field(default_factory=frozenset)
    property_names: Collection[str] = field(default_factory=frozenset)
    opens: bool = False
    gone: Collection[str] = field(default_factory=tuple)

    @property
    def moves_version(self) -> bool:
        return self.opens or bool(self.label_keys) or bool(self.gone)


def lock_fleet() -> FleetState:
    """Lock the row of the fleet: changes of the fleet and decisions on it are written one after another.

    Requires a transaction. SQLite has one writer at a time anyway.
    """
    FleetState.objects.get_or_create()
    return FleetState.objects.select_for_update().get()


def log_change(change: ChangeLogEntry) -> None:
    """Increase the counters and enqueue the affected placements, in the transaction of the operation."""
    if not change.moves_version and not change.property_names:
        return
    lock_fleet()
    moved = {"version": F("version") + 1} if change.moves_version else {}
    read = {"readings": F("readings") + 1} if change.property_names else {}
    FleetState.objects.update(**moved, **read)
    FleetChange.objects.create(
        label_keys=sorted(change.label_keys),
        property_names=sorted(change.property_names),
        opens=change.opens,
        gone=sorted(change.gone),
        reason=change.reason[:200],
    )
    enqueue(FLEET_CHANGED)
