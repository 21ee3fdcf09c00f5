"""What a fresh schedule would pick: placements decided from scratch in memory, nothing is written.

From scratch means what a change of the policy means: every binding is obsolete, all clusters are candidates,
and where a placement is already only wins ties. `operations/rescheduling.py` makes it so.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from clusters.models import CORDON_KEY, CORDON_VALUE
from clusters.queries import fleet_now
from placements.explain.wording import joined
from placements.models import Drain, DrainStep, Placement
from placements.queries.disruptions import latest_drain
from placements.queries.impact import MOST_LOOKED_AT, with_clusters
from placements.scheduling.bindings import Binding as BindingValue
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.fleet import Fleet
from placements.scheduling.scheduler import schedule
from placements.snapshots import cycles_of


class Return(StrEnum):
    """How a placement could come back to a cluster."""

    HERE = "here"
    """It is there."""
    BY_ITSELF = "by-itself"
    """Its next ordinary cycle picks the cluster once it is not cordoned."""
    RESCHEDULED = "rescheduled"
    """Only a fresh schedule would pick the cluster."""
    ELSEWHERE = "elsewhere"
    """A fresh schedule would not pick the cluster either."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a fresh schedule of one placement would change."""

    placement: str
    joins: tuple[str, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    is_fulfilled: bool


@dataclass(frozen=True, slots=True)
class BringBackRow:
    """Whether one placement would come back; `fresh` is what rescheduling it would change, `said` a sentence.

    `fresh.leaves` are the clusters that it would give up for that.
    """

    placement: str
    how: Return
    fresh: Fresh
    said: str


@dataclass(frozen=True, slots=True)
class BringBack:
    """What the last drain took off a cluster, and how each could come back; those that need a hand first."""

    cluster: str
    is_cordoned: bool
    rows: tuple[BringBackRow, ...]
    unlooked: int = 0


def fresh_schedule(placement: Placement, *, fleet: Fleet | None = None) -> Fresh:
    """Say what a fresh schedule of a placement would change, on the fleet as it is or on another."""
    [(_, cycle)] = cycles_of([placement], fleet or fleet_now().fleet)
    return _fresh(placement.name, cycle)


def bring_back(cluster: str) -> BringBack:
    """Say how what the last drain took off a cluster could come back, were the cluster not cordoned.

    At most 200 placements are looked at, by name. Nothing for a cluster that was never drained.
    """
    last, now = latest_drain(cluster), fleet_now().fleet
    names = _taken_off(last) if last else ()
    rows = Placement.objects.filter(name__in=names, deleting_since=None, selection_faults=[])
    looked = list(rows.order_by("name")[:MOST_LOOKED_AT])
    found = [_row(one, cycle, cluster) for one, cycle in cycles_of(looked, uncordoned(now, cluster))]
    found.sort(key=lambda row: (_HAND_FIRST.index(row.how), row.placement))
    is_cordoned = uncordoned(now, cluster) is not now
    return BringBack(cluster, is_cordoned, tuple(found), rows.count() - len(looked))


_HAND_FIRST = (Return.RESCHEDULED, Return.BY_ITSELF, Return.ELSEWHERE, Return.HERE)


def uncordoned(fleet: Fleet, name: str) -> Fleet:
    """Give the fleet with one cluster uncordoned; the same fleet where it is not cordoned."""
    found = [one for one in fleet if one.name == name]
    changed = [
        one._replace(taints=tuple(taint for taint in one.taints if not _is_cordon(taint.key, taint.value)))
        for one in found
    ]
    return fleet if changed == found else with_clusters(fleet, changed)


def _is_cordon(key: str, value: str) -> bool:
    return (key, value) == (CORDON_KEY, CORDON_VALUE)


def _taken_off(drain: Drain) -> Iterable[str]:
    """Name the placements that a drain dealt with; one that stayed was never taken off."""
    return drain.steps.exclude(state=DrainStep.State.STAYS).values_list("placement_name", flat=True)


def _row(placement: Placement, cycle: Cycle, cluster: str) -> BringBackRow:
    fresh = _fresh(placement.name, cycle)
    if cluster in _active(cycle.live_bindings):
        return BringBackRow(placement.name, Return.HERE, fresh, "Is there.")
    if cluster in schedule(cycle).picked_names:
        said = "Comes back by itself once the cluster is not cordoned."
        return BringBackRow(placement.name, Return.BY_ITSELF, fresh, said)
    if cluster not in fresh.joins:
        said = "A fresh schedule would not pick this cluster either."
        return BringBackRow(placement.name, Return.ELSEWHERE, fresh, said)
    place = f", in the place of {joined(fresh.leaves)}" if fresh.leaves else ""
    said = f"A fresh schedule would pick this cluster{place}."
    return BringBackRow(placement.name, Return.RESCHEDULED, fresh, said)


def _fresh(name: str, cycle: Cycle) -> Fresh:
    decision = schedule(from_scratch(cycle))
    before, after = _active(cycle.live_bindings), _after(decision)
    return Fresh(
        name,
        joins=tuple(sorted(after - before)),
        leaves=tuple(sorted(before - after)),
        placed_before=len(before),
        placed_after=len(after),
        is_fulfilled=decision.is_fulfilled,
    )


def from_scratch(cycle: Cycle) -> Cycle:
    """Give the cycle as it would run after a change of the policy: every binding is obsolete."""
    return replace(cycle, bindings=tuple(replace(one, is_current=False) for one in cycle.bindings))


def _after(decision: Decision) -> frozenset[str]:
    return _active(decision.cycle.live_bindings if decision.is_failed else decision.bindings_after)


def _active(bindings: Iterable[BindingValue]) -> frozenset[str]:
    return frozenset(one.cluster for one in bindings if one.is_active)
