"""What a change of the fleet would do to placements: they are decided anew in memory, nothing is written.

A page or an admin action changes a fleet and asks:

    fleet = fleet_now().fleet
    impact_of(with_clusters(fleet, [changed]))         labels, taints, a cordon, new clusters
    impact_of(fleet, gone=["nimblefox"])               clusters that leave
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from clusters.queries import fleet_now
from placements.models import Placement
from placements.queries.concerned import looking_placements, losing_placements
from placements.scheduling.fleet import Cluster, Fleet
from placements.scheduling.scheduler import schedule
from placements.snapshots import cycles_of

MOST_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One placement that would change: who joins and leaves, and how it stands before and after."""

    placement: str
    joins: tuple[str, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    was_fulfilled: bool | None
    is_fulfilled: bool

    @property
    def gets_worse(self) -> bool:
        """Tell whether the placement would no longer be fulfilled, or lose without a replacement."""
        lost = self.was_fulfilled is not False and not self.is_fulfilled
        return lost or (not self.is_fulfilled and self.placed_after < self.placed_before)


@dataclass(frozen=True, slots=True)
class Impact:
    """The placements that would change, those that get worse first; those that stay as they are left out.

    `looked` counts the placements that were decided anew, `unlooked` those that there were too many of.
    """

    rows: tuple[ImpactRow, ...]
    looked: int
    unlooked: int = 0


def with_clusters(fleet: Fleet, changed: Iterable[Cluster]) -> Fleet:
    """Give the fleet with these clusters in the place of those of their names, or added."""
    return fleet.with_clusters(changed)


def impact_of(fleet: Fleet, *, gone: Collection[str] = ()) -> Impact:
    """Say which placements would change if the fleet were this one, without the clusters that are gone.

    At most 200 placements are looked at, by name.
    """
    left = Fleet(cluster for cluster in fleet if cluster.name not in gone) if gone else fleet
    rows = Placement.objects.filter(pk__in=_concerned(left, gone), deleting_since=None, selection_faults=[])
    looked = list(rows.order_by("name")[:MOST_LOOKED_AT])
    unlooked = rows.count() - len(looked) if len(looked) == MOST_LOOKED_AT else 0
    changed = [row for row in _decided_anew(looked, left) if row.joins or row.leaves or row.gets_worse]
    changed.sort(key=lambda row: (not row.gets_worse, row.placement))
    return Impact(tuple(changed), len(looked), unlooked)


def _concerned(fleet: Fleet, gone: Collection[str]) -> list[int]:
    """Give the placements that would be asked if the fleet became this one."""
    before = {cluster.name: cluster for cluster in fleet_now().fleet}
    after = {cluster.name: cluster for cluster in fleet}
    opens, keys = bool(gone) or before.keys() != after.keys(), set[str]()
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if old is new:
            continue
        opens = opens or (old.taints, old.eligibility.kind) != (new.taints, new.eligibility.kind)
        if old.labels != new.labels:
            keys |= {key for key, _ in set(old.labels.items()) ^ set(new.labels.items())}
        if (old.properties, old.usage) != (new.properties, new.usage):
            opens = True  # what a policy calls a reading is not told apart here; more are looked at
    looking = looking_placements(opens=opens, label_keys=keys, property_names=frozenset())
    return sorted({*looking, *losing_placements({*gone, *(before.keys() - after.keys())})})


def _decided_anew(placements: Collection[Placement], fleet: Fleet) -> Iterable[ImpactRow]:
    for placement, cycle in cycles_of(placements, fleet):
        decision = schedule(cycle)
        before = {one.cluster for one in cycle.live_bindings if one.is_active}
        after = {one.cluster for one in decision.bindings_after if one.is_active}
        after = before if decision.is_failed else after
        yield ImpactRow(
            placement.name,
            joins=tuple(sorted(after - before)),
            leaves=tuple(sorted(before - after)),
            placed_before=len(before),
            placed_after=len(after),
            was_fulfilled=placement.is_fulfilled,
            is_fulfilled=decision.is_fulfilled,
        )
