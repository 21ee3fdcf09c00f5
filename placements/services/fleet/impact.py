"""Impact of a change of the fleet on placements: scheduled in memory, nothing is written.

A page or an admin action changes a fleet value and calls:

    fleet = fleet_now().fleet
    impact_of(fleet.with_clusters([changed]))         labels, taints, a cordon, new clusters
    impact_of(fleet, gone=["nimblefox"])               clusters that leave
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from clusters.fleet import Fleet
from clusters.queries import current_fleet
from placements.engine.balance import ExceededLimit, exceeded_limits
from placements.engine.resilience import active, placed_after
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.what_if import balance_sentence
from placements.models import Placement
from placements.services.fleet_events import affected_by_change, losing_a_cluster, reading_labels
from placements.services.snapshots import cycles_of

MOST_EVALUATED = 200


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """One placement that would change: selected and deselected clusters, counts before and after.

    `exceeded_limits` are the hard limits that what is placed after the change exceeds.
    """

    placement: str
    joins: tuple[str, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    was_fulfilled: bool | None
    is_fulfilled: bool
    exceeded_limits: tuple[ExceededLimit, ...] = ()

    @property
    def balance(self) -> str:
        return balance_sentence(self.exceeded_limits)

    @property
    def gets_worse(self) -> bool:
        """Return whether the placement would become unfulfilled, or lose a cluster without replacement."""
        lost = self.was_fulfilled is not False and not self.is_fulfilled
        return lost or (not self.is_fulfilled and self.placed_after < self.placed_before)


@dataclass(frozen=True, slots=True)
class Impact:
    """The placements that would change, those that get worse first.

    `evaluated` is the number of evaluated placements, `not_evaluated` the number beyond the limit.
    """

    rows: tuple[ImpactRow, ...]
    evaluated: int
    not_evaluated: int = 0


def impact_of(fleet: Fleet, *, gone: Collection[str] = ()) -> Impact:
    """Return the impact of this fleet without the clusters `gone`, on at most 200 placements by name."""
    left = fleet.with_clusters((), gone) if gone else fleet
    current = current_fleet().fleet
    before = {cluster.name: cluster for cluster in current}
    after = {cluster.name: cluster for cluster in left}
    opens, keys = bool(gone) or before.keys() != after.keys(), set[str]()
    changed = [(old, after[name]) for name, old in before.items() if after.get(name, old) is not old]
    for old, new in changed:
        opens = opens or (old.taints, old.eligibility.kind) != (new.taints, new.eligibility.kind)
        if old.labels != new.labels:
            keys |= {key for key, _ in set(old.labels.items()) ^ set(new.labels.items())}
        if (old.properties, old.usage) != (new.properties, new.usage):
            opens = True  # which properties a policy reads is not known here, so all placements are affected
    affected = affected_by_change(opens=opens, label_keys=keys, property_names=frozenset())
    losing = losing_a_cluster({*gone, *(before.keys() - after.keys())})
    # A label moves clusters between domains, also of placements that no fleet change reschedules.
    return impact_on({*affected, *losing, *reading_labels(keys)}, left, before=current)


def impact_on(
    placements: Collection[int], fleet: Fleet, *, named: Collection[str] = (), before: Fleet | None = None
) -> Impact:
    """Return the impact of the next scheduling cycle of these placements on a fleet.

    At most 200 are evaluated, by name. Those in `named` are included although nothing would change.
    `before` is the fleet as it is, where it is another one: a label alone can exceed a limit.
    """
    rows = Placement.objects.filter(pk__in=sorted(placements), deleting_since=None, selection_faults=[])
    evaluated = list(rows.order_by("name")[:MOST_EVALUATED])
    not_evaluated = rows.count() - len(evaluated) if len(evaluated) == MOST_EVALUATED else 0
    changed = []
    for placement, cycle in cycles_of(evaluated, fleet):
        row = impact_row(placement, cycle)
        today = replace(cycle, fleet=before or fleet)
        exceeds_more = bool(row.exceeded_limits) and list(row.exceeded_limits) != exceeded_limits(
            today, active(cycle.live_bindings)
        )
        if row.joins or row.leaves or row.gets_worse or exceeds_more or row.placement in named:
            changed.append(row)
    changed.sort(key=lambda row: (not row.gets_worse, not row.exceeded_limits, row.placement))
    return Impact(tuple(changed), len(evaluated), not_evaluated)


def impact_row(placement: Placement, cycle: Cycle) -> ImpactRow:
    """Return what a cycle would change."""
    return impact_of_decision(placement, schedule(cycle))


def impact_of_decision(placement: Placement, decision: Decision) -> ImpactRow:
    cycle = decision.cycle
    before = active(cycle.live_bindings)
    after = before if decision.is_failed else placed_after(decision)
    return ImpactRow(
        placement.full_name,
        joins=tuple(sorted(after - before)),
        leaves=tuple(sorted(before - after)),
        placed_before=len(before),
        placed_after=len(after),
        was_fulfilled=placement.is_fulfilled,
        is_fulfilled=decision.is_fulfilled,
        exceeded_limits=tuple(exceeded_limits(cycle, after)),
    )
