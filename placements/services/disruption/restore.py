"""Results of rescheduling placements, computed in memory; nothing is written.

Rescheduling has the effect of a policy change: every binding is obsolete, all clusters are candidates, and a
present cluster only wins ties. `services/rescheduling.py` writes it.
"""

from dataclasses import dataclass
from enum import StrEnum

from clusters.fleet import CORDON_KEY, CORDON_VALUE, Fleet
from clusters.queries import current_fleet
from fleetui.apimachinery.words import joined
from placements.engine.loss import PlacementLoss
from placements.engine.scheduling.scheduler import schedule
from placements.models import DrainStep, Placement
from placements.services.disruption.queries import latest_drain
from placements.services.loss.evaluation import MOST_EVALUATED, impact_of_decision
from placements.services.snapshots import cycles_of


class Return(StrEnum):
    """How a placement can return to a cluster."""

    HERE = "here"
    """Present."""
    BY_ITSELF = "by-itself"
    """Selected by the next scheduling cycle once the cluster is uncordoned."""
    RESCHEDULED = "rescheduled"
    """Selected only if rescheduled."""
    ELSEWHERE = "elsewhere"
    """Not selected even if rescheduled."""


@dataclass(frozen=True, slots=True)
class BringBackRow:
    """Whether one placement would return; `message` is the message.

    `fresh` has the changes by rescheduling; `fresh.leaves` are the clusters that would be deselected.
    """

    placement: str
    how: Return
    fresh: PlacementLoss
    message: str


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The placements that the last drain evicted, those first that have to be rescheduled."""

    cluster: str
    is_cordoned: bool
    rows: tuple[BringBackRow, ...]
    not_evaluated: int = 0


def fresh_schedule(placement: Placement) -> PlacementLoss:
    [(_, cycle)] = cycles_of([placement], current_fleet().fleet)
    return impact_of_decision(placement, schedule(cycle.rescheduled()))


def bring_back(cluster: str) -> RestorePlan:
    """Return how the evicted placements of the last drain would return to the uncordoned cluster.

    At most 200 placements are evaluated, by name; none for a cluster that was never drained.
    """
    last, now = latest_drain(cluster), current_fleet().fleet
    steps = DrainStep.objects.filter(drain=last).exclude(state=DrainStep.State.STAYS)
    names = steps.values_list("placement_name", flat=True) if last else ()
    rows = Placement.objects.filter(
        full_name__in=names, deleting_since=None, selection_faults=[]
    )
    evaluated = list(rows.order_by("name")[:MOST_EVALUATED])
    fleet, returns = uncordoned(now, cluster), []
    for placement, cycle in cycles_of(evaluated, fleet):
        fresh = impact_of_decision(placement, schedule(cycle.rescheduled()))
        if cluster in cycle.placed_before:
            how, message = Return.HERE, "Present."
        elif cluster in schedule(cycle).picked_names:
            how, message = (
                Return.BY_ITSELF,
                "Returns automatically once the cluster is uncordoned.",
            )
        elif cluster not in fresh.joins:
            how, message = (
                Return.ELSEWHERE,
                "Would not be selected even if rescheduled.",
            )
        else:
            replaced = f", replacing {joined(fresh.leaves)}" if fresh.leaves else ""
            how, message = (
                Return.RESCHEDULED,
                f"Would be selected if rescheduled{replaced}.",
            )
        returns.append(BringBackRow(placement.full_name, how, fresh, message))
    returns.sort(key=lambda row: (_ORDER.index(row.how), row.placement))
    return RestorePlan(
        cluster, fleet is not now, tuple(returns), rows.count() - len(evaluated)
    )


_ORDER = (Return.RESCHEDULED, Return.BY_ITSELF, Return.ELSEWHERE, Return.HERE)


def uncordoned(fleet: Fleet, name: str) -> Fleet:
    """Return the fleet with one cluster uncordoned; the same object if it is not cordoned."""
    clusters, cordon = (
        [cluster for cluster in fleet if cluster.name == name],
        (CORDON_KEY, CORDON_VALUE),
    )
    changed = [
        cluster.with_changes(
            taints=tuple(
                taint for taint in cluster.taints if (taint.key, taint.value) != cordon
            )
        )
        for cluster in clusters
    ]
    return fleet if changed == clusters else fleet.with_clusters(changed)
