"""What a change of the fleet would do to the placements, decided in memory."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Q

from clusters.queries import FleetView
from placements.models import Binding, Placement
from placements.scheduling.bindings import BindingState
from placements.scheduling.fleet import Fleet
from placements.scheduling.scheduler import schedule
from placements.snapshots import take

MOST_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One placement that would change; fulfilled before is None where nothing was decided yet."""

    placement: str
    joins: tuple[str, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    fulfilled_before: bool | None
    fulfilled_after: bool


@dataclass(frozen=True, slots=True)
class Impact:
    """The placements that would change, by name, and how many were not looked at."""

    rows: tuple[ImpactRow, ...]
    unlooked: int


def impact_of(fleet: Fleet, *, gone: Collection[str] = ()) -> Impact:
    """Schedule on the changed fleet whoever may answer differently; `gone` are the clusters that leave."""
    losing = Binding.objects.filter(cluster_name__in=list(gone)).values("placement_id")
    concerned = Placement.objects.filter(Q(keeps_looking=True) | Q(pk__in=losing), deleting_since=None)
    looked_at = list(concerned.order_by("name")[:MOST_LOOKED_AT])
    unlooked = concerned.count() - len(looked_at) if len(looked_at) == MOST_LOOKED_AT else 0
    view = FleetView(0, 0, fleet)
    found = [_row(placement, view) for placement in looked_at]
    return Impact(tuple(row for row in found if row is not None), unlooked)


def _row(placement: Placement, view: FleetView) -> ImpactRow | None:
    inputs = take(placement, view)
    decision = schedule(inputs.cycle)
    before = {one.cluster_name for one in inputs.bindings if one.state != BindingState.UNSCHEDULED}
    after = before
    if not decision.is_failed:
        after = {one.cluster for one in decision.bindings_after if one.is_active}
    if after == before and decision.is_fulfilled == placement.is_fulfilled:
        return None
    return ImpactRow(
        placement.name,
        tuple(sorted(after - before)),
        tuple(sorted(before - after)),
        len(before),
        len(after),
        placement.is_fulfilled,
        decision.is_fulfilled,
    )
