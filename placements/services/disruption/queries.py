"""Evictions, budgets and drains: as values and sentences, and what each of them means now."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Case, Count, QuerySet, Value, When

from fleetui.apimachinery.grouping import grouped
from fleetui.bulk import (
    filter_by,
)
from placements.engine.disruption import (
    EvictionContext,
    EvictionReason,
    Executed,
    Invalid,
    KeptReason,
    NotExecuted,
    Numbers,
    Verdict,
    budget_numbers,
)
from placements.engine.loss import why_stays
from placements.engine.rollout.state import Phase
from placements.explain.staged_updates import (
    STAYS_SENTENCES,
    eviction_sentence,
    hub_eviction_sentence,
)
from placements.manifests.binding import BindingState
from placements.manifests.disruption import (
    DisruptionBudgetSpec,
    budget_errors,
    parse_disruption_budget,
)
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.models import (
    Binding,
    DisruptionBudget,
    Drain,
    DrainStep,
    Eviction,
    Placement,
    StagedRun,
)


def budget_for(placement: str) -> DisruptionBudgetSpec | None:
    row = DisruptionBudget.objects.filter(name=placement).first()
    return parse_disruption_budget(row.document).spec if row else None


def why_placement_stays(placement: Placement) -> KeptReason | None:
    policy = parse_placement(placement.document).spec.policy
    return why_stays(policy, is_namespaced=bool(placement.namespace))


def has_started_run(placement: Placement) -> bool:
    """Return whether a staged update run is in progress; it fails if a cluster leaves.

    See `rules/lifecycle.md#staged-update-runs`.
    """
    return StagedRun.objects.filter(
        placement=placement, ended_at=None, started_at__isnull=False
    ).exists()


def numbers_facts(numbers: Numbers | None) -> dict[str, int] | None:
    return asdict(numbers) if numbers else None


def verdict_of(eviction: Eviction) -> Verdict:
    verdict = _VERDICTS.get(eviction.outcome, Invalid)
    return verdict(EvictionReason(eviction.why), _numbers(eviction.numbers))


_VERDICTS: dict[str, type[Verdict]] = {
    Eviction.Outcome.EXECUTED: Executed,
    Eviction.Outcome.NOT_EXECUTED: NotExecuted,
}


def event_line(eviction: Eviction) -> str:
    if eviction.is_mirrored:
        return hub_eviction_sentence(eviction.hub_conditions)
    return eviction_sentence(verdict_of(eviction))


def _numbers(facts: Mapping[str, Any] | None) -> Numbers | None:
    return Numbers(**facts) if facts else None


def latest_drain(cluster: str) -> Drain | None:
    return Drain.objects.filter(cluster_name=cluster).order_by("-id").first()


def left_of(drain: Drain) -> list[DrainStep]:
    """Return the steps of placements that are not evicted, by name."""
    return list(
        drain.steps.exclude(state=DrainStep.State.GONE).order_by("placement_name")
    )


def taken_over(drain: Drain) -> dict[str, list[Binding]]:
    """Return, by placement of a drain, the bindings that were selected since its start."""
    rows = Binding.objects.filter(
        placement__full_name__in=drain.steps.values("placement_name"),
        picked_at__gte=drain.started_at,
    ).exclude(cluster_name=drain.cluster_name)
    rows = rows.select_related("placement").order_by("cluster_name")
    return grouped((row.placement.full_name, row) for row in rows)


def step_sentence(step: DrainStep) -> str:
    is_over = step.drain.state != Drain.State.RUNNING
    match step.state:
        case DrainStep.State.WAITING if is_over:
            return "Not evicted before the drain ended."
        case DrainStep.State.LEAVING if is_over:
            return "Removal was in progress when the drain ended."
        case DrainStep.State.BLOCKED if step.why not in (
            KeptReason.HELD,
            KeptReason.STAGED_RUN,
        ):
            return eviction_sentence(
                NotExecuted(EvictionReason(step.why), _numbers(step.numbers))
            )
        case DrainStep.State.BLOCKED | DrainStep.State.STAYS | DrainStep.State.NEXT_RUN:
            return STAYS_SENTENCES[KeptReason(step.why)]
        case DrainStep.State.LEAVING if step.why == EvictionReason.BEING_DELETED:
            return "Placement is being deleted."
    return _STEPS[DrainStep.State(step.state)]


_STEPS = {
    DrainStep.State.WAITING: "Waiting for running evictions.",
    DrainStep.State.LEAVING: "Removing resources.",
    DrainStep.State.GONE: "Evicted.",
}


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget with its limit in words, and what it allows now; `problem` is why it allows nothing."""

    row: DisruptionBudget
    limit: str
    placement: Placement | None
    numbers: Numbers | None
    problem: str = ""

    @classmethod
    def of(
        cls,
        row: DisruptionBudget,
        placement: Placement | None,
        counts: dict[int, dict[str, int]],
    ) -> "BudgetState":
        spec = parse_disruption_budget(row.document).spec
        limit = (
            f"maxUnavailable {spec.max_unavailable}"
            if spec.max_unavailable is not None
            else f"minAvailable {spec.min_available}"
        )
        if placement is None:
            return cls(row, limit, None, None, f"No placement is named {row.name}.")
        kind = PlacementType(placement.placement_type)
        if errors := budget_errors(spec, kind):
            return cls(
                row,
                limit,
                placement,
                None,
                f"Not allowed for {kind}: {errors[0].message}.",
            )
        of_phases = counts.get(placement.pk, {})
        total = sum(of_phases.values())
        wanted = placement.number_of_clusters
        context = EvictionContext(
            kind,
            {},
            total if wanted is None else wanted,
            others_available=of_phases.get(Phase.AVAILABLE, 0),
            others=total,
        )
        return cls(row, limit, placement, budget_numbers(context, spec))


def budgets_matching(*, text: str = "") -> QuerySet[DisruptionBudget]:
    return filter_by(DisruptionBudget.objects.all(), name__contains=text.lower())


def evictions_matching(
    *, text: str = "", placement: str = "", outcome: str = ""
) -> QuerySet[Eviction]:
    """Return evictions without their manifests; unordered. `text` is part of the name of the placement."""
    return filter_by(
        Eviction.objects.defer("document"),
        placement_name__contains=text.lower(),
        placement_name=placement,
        outcome=outcome,
    )


def budget_states(rows: list[DisruptionBudget]) -> list[BudgetState]:
    """Return what each budget allows now; two queries."""
    names = [row.name for row in rows]
    placements = {
        placement.full_name: placement
        for placement in Placement.objects.filter(full_name__in=names)
    }
    phase = Case(
        When(state=BindingState.UNSCHEDULED, then=Value(Phase.REMOVING)),
        default="phase",
    )
    grouped = (
        Binding.objects.filter(placement__in=placements.values())
        .order_by()
        .annotate(now=phase)
        .values("placement", "now")
        .annotate(count=Count("pk"))
    )
    counts: dict[int, dict[str, int]] = {}
    for document in grouped:
        counts.setdefault(document["placement"], {})[document["now"]] = document[
            "count"
        ]
    return [BudgetState.of(row, placements.get(row.name), counts) for row in rows]


@dataclass(frozen=True, slots=True)
class EvictionRow:
    """An eviction with what became of it."""

    row: Eviction
    message: str


def eviction_rows(rows: list[Eviction]) -> list[EvictionRow]:
    return [EvictionRow(row, event_line(row)) for row in rows]
