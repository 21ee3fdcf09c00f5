"""Moving the fleet's counters, and leaving word of what changed for the placements."""

from collections.abc import Collection
from dataclasses import dataclass, field

from django.db.models import F

from clusters.models import FleetChange, FleetState
from fleetui.wake import wake

FLEET_CHANGED = "placements.tasks.fleet_changed"


@dataclass(frozen=True, slots=True)
class Change:
    """What one operation changed of the fleet, as far as placements may care."""

    reason: str
    label_keys: Collection[str] = field(default_factory=frozenset)
    property_names: Collection[str] = field(default_factory=frozenset)
    opens: bool = False
    gone: Collection[str] = field(default_factory=tuple)

    @property
    def moves_version(self) -> bool:
        """Tell whether labels, taints, membership or a verdict changed."""
        return self.opens or bool(self.label_keys) or bool(self.gone)


def lock_fleet() -> FleetState:
    """Take the fleet's one row, so that whoever changes the fleet or decides on it does so in turn.

    Only inside a transaction. SQLite has one writer at a time anyway.
    """
    FleetState.objects.get_or_create(id=1)
    return FleetState.objects.select_for_update().get(id=1)


def note(change: Change) -> None:
    """Move the counters and wake the placements, in the transaction of the operation; no change, nothing."""
    if not change.moves_version and not change.property_names:
        return
    lock_fleet()
    moved = {"version": F("version") + 1} if change.moves_version else {}
    read = {"readings": F("readings") + 1} if change.property_names else {}
    FleetState.objects.filter(id=1).update(**moved, **read)
    FleetChange.objects.create(
        label_keys=sorted(change.label_keys),
        property_names=sorted(change.property_names),
        opens=change.opens,
        gone=sorted(change.gone),
        reason=change.reason[:200],
    )
    wake(FLEET_CHANGED)
