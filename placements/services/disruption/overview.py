"""Disruption budgets and evictions as pages and REST show them: what each one means now."""

from dataclasses import dataclass

from django.db.models import Case, Count, QuerySet, Value, When

from placements.engine.disruption import ClusterAvailability, EvictionContext, Numbers, budget_numbers
from placements.engine.rollout.state import EMPTY, Phase
from placements.manifests.binding import BindingState
from placements.manifests.disruption import budget_faults, parse_disruption_budget
from placements.manifests.policy import PlacementType
from placements.models import Binding, DisruptionBudget, Eviction, Placement
from placements.services.disruption.queries import event_line

_AVAILABILITIES = {
    Phase.REMOVING: ClusterAvailability.LEAVING,
    Phase.REMOVE_FAILED: ClusterAvailability.LEAVING,
    Phase.FAILED: ClusterAvailability.FAILED,
    Phase.AVAILABLE: ClusterAvailability.AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget with its limit in words, and what it allows now; `problem` is why it allows nothing."""

    row: DisruptionBudget
    limit: str
    placement: Placement | None
    numbers: Numbers | None
    problem: str = ""


def budgets_matching(*, text: str = "") -> QuerySet[DisruptionBudget]:
    rows = DisruptionBudget.objects.all()
    return rows.filter(name__contains=text.lower()) if text else rows


def evictions_matching(*, placement: str = "", outcome: str = "") -> QuerySet[Eviction]:
    """Return evictions without their manifests; unordered."""
    rows = Eviction.objects.defer("document")
    rows = rows.filter(placement_name=placement) if placement else rows
    return rows.filter(outcome=outcome) if outcome else rows


def budget_states(rows: list[DisruptionBudget]) -> list[BudgetState]:
    """Return what each budget allows now; two queries."""
    names = [row.name for row in rows]
    placements = {one.full_name: one for one in Placement.objects.filter(full_name__in=names)}
    known = Binding.objects.filter(placement__in=[one.pk for one in placements.values()])
    phase = Case(When(state=BindingState.UNSCHEDULED, then=Value(Phase.REMOVING)), default="phase")
    grouped = known.order_by().annotate(now=phase).values("placement", "now").annotate(count=Count("pk"))
    counts: dict[int, dict[str, int]] = {}
    for one in grouped:
        counts.setdefault(one["placement"], {})[one["now"]] = one["count"]
    return [_state_of(row, placements.get(row.name), counts) for row in rows]


def _state_of(
    row: DisruptionBudget, placement: Placement | None, counts: dict[int, dict[str, int]]
) -> BudgetState:
    spec = parse_disruption_budget(row.document).spec
    is_maximum = spec.max_unavailable is not None
    limit = f"maxUnavailable {spec.max_unavailable}" if is_maximum else f"minAvailable {spec.min_available}"
    if placement is None:
        return BudgetState(row, limit, None, None, f"There is no placement {row.name}.")
    kind = PlacementType(placement.placement_type)
    if faults := budget_faults(spec, kind):
        return BudgetState(row, limit, placement, None, f"Not allowed for {kind}: {faults[0].message}.")
    clusters = {
        f"{phase}-{number}": availability_of(phase)
        for phase, count in counts.get(placement.pk, {}).items()
        for number in range(count)
    }
    wanted = placement.number_of_clusters
    context = EvictionContext(kind, clusters, len(clusters) if wanted is None else wanted)
    return BudgetState(row, limit, placement, budget_numbers(context, spec))


def availability_of(phase: str) -> ClusterAvailability:
    if Phase(phase) in EMPTY:
        return ClusterAvailability.PLANNED
    return _AVAILABILITIES.get(Phase(phase), ClusterAvailability.WORKING)


@dataclass(frozen=True, slots=True)
class EvictionRow:
    """An eviction with what became of it."""

    row: Eviction
    message: str


def eviction_rows(rows: list[Eviction]) -> list[EvictionRow]:
    return [EvictionRow(row, event_line(row)) for row in rows]
