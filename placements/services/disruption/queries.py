"""Stored evictions, budgets and drains as values and sentences."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from placements.engine.disruption import (
    EvictionReason,
    Executed,
    Invalid,
    KeptReason,
    NotExecuted,
    Numbers,
    Verdict,
)
from placements.explain.staged_updates import STAYS_SENTENCES, eviction_sentence, hub_eviction_sentence
from placements.manifests.disruption import DisruptionBudgetSpec, parse_disruption_budget
from placements.models import Binding, DisruptionBudget, Drain, DrainStep, Eviction


def budget_for(placement: str) -> DisruptionBudgetSpec | None:
    row = DisruptionBudget.objects.filter(name=placement).first()
    return parse_disruption_budget(row.document).spec if row else None


def numbers_facts(numbers: Numbers | None) -> dict[str, int] | None:
    return asdict(numbers) if numbers else None


def verdict_of(eviction: Eviction) -> Verdict:
    why, numbers = EvictionReason(eviction.why), _numbers(eviction.numbers)
    match eviction.outcome:
        case Eviction.Outcome.EXECUTED:
            return Executed(why, numbers)
        case Eviction.Outcome.NOT_EXECUTED:
            return NotExecuted(why, numbers)
    return Invalid(why)


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
    return list(drain.steps.exclude(state=DrainStep.State.GONE).order_by("placement_name"))


def taken_over(drain: Drain) -> dict[str, list[Binding]]:
    """Return, by placement of a drain, the bindings that were selected since its start."""
    names = drain.steps.values("placement_name")
    rows = Binding.objects.filter(placement__full_name__in=names, picked_at__gte=drain.started_at)
    found: dict[str, list[Binding]] = {}
    rows = rows.exclude(cluster_name=drain.cluster_name).select_related("placement")
    for row in rows.order_by("cluster_name"):
        found.setdefault(row.placement.full_name, []).append(row)
    return found


def step_sentence(step: DrainStep) -> str:
    """Return the message of a step of a drain."""
    is_over = step.drain.state != Drain.State.RUNNING
    match step.state:
        case DrainStep.State.WAITING if is_over:
            return "Not evicted before the drain ended."
        case DrainStep.State.LEAVING if is_over:
            return "Removal was in progress when the drain ended."
        case DrainStep.State.BLOCKED if step.why not in (KeptReason.HELD, KeptReason.STAGED_RUN):
            return eviction_sentence(NotExecuted(EvictionReason(step.why), _numbers(step.numbers)))
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
