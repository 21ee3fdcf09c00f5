"""Evictions, budgets and drains as they are stored, read back into values and words."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from placements.explain.staged_wording import STAYS_SENTENCES, eviction_sentence
from placements.models import Binding, DisruptionBudget, Drain, DrainStep, Eviction
from placements.rollout.disruption import Executed, Invalid, NotExecuted, Numbers, Verdict, Why, WhyStays
from placements.scheduling.door.disruption_documents import DisruptionBudgetSpec, parse_disruption_budget


def budget_for(placement: str) -> DisruptionBudgetSpec | None:
    """Give the budget that holds evictions of a placement back, None where nothing does."""
    row = DisruptionBudget.objects.filter(name=placement).first()
    return parse_disruption_budget(row.document).spec if row else None


def numbers_facts(numbers: Numbers | None) -> dict[str, int] | None:
    """Give the arithmetic of a budget as plain data."""
    return asdict(numbers) if numbers else None


def verdict_of(eviction: Eviction) -> Verdict:
    """Give what was said to an eviction."""
    why, numbers = Why(eviction.why), _numbers(eviction.numbers)
    match eviction.outcome:
        case Eviction.Outcome.EXECUTED:
            return Executed(why, numbers)
        case Eviction.Outcome.NOT_EXECUTED:
            return NotExecuted(why, numbers)
    return Invalid(why)


def said_of(eviction: Eviction) -> str:
    """Say in a sentence what became of an eviction."""
    return eviction_sentence(verdict_of(eviction))


def _numbers(facts: Mapping[str, Any] | None) -> Numbers | None:
    return Numbers(**facts) if facts else None


def latest_drain(cluster: str) -> Drain | None:
    """Give the last drain of a cluster, over or not."""
    return Drain.objects.filter(cluster_name=cluster).order_by("-id").first()


def left_of(drain: Drain) -> list[DrainStep]:
    """Give what a drain has not moved off: what stays, what waits, and what is leaving still; by name."""
    return list(drain.steps.exclude(state=DrainStep.State.GONE).order_by("placement_name"))


def taken_over(drain: Drain) -> dict[str, list[Binding]]:
    """Give, by placement, where what a drain deals with was placed since it began."""
    names = drain.steps.values("placement_name")
    rows = Binding.objects.filter(placement__name__in=names, picked_at__gte=drain.started_at)
    found: dict[str, list[Binding]] = {}
    for row in (
        rows.exclude(cluster_name=drain.cluster_name).select_related("placement").order_by("cluster_name")
    ):
        found.setdefault(row.placement.name, []).append(row)
    return found


def step_sentence(step: DrainStep) -> str:
    """Say in a sentence how far a drain is with a placement, and what it waits for."""
    is_over = step.drain.state != Drain.State.RUNNING
    match step.state:
        case DrainStep.State.WAITING if is_over:
            return "Its turn did not come."
        case DrainStep.State.LEAVING if is_over:
            return "Its resources were still being removed when the drain ended."
        case DrainStep.State.BLOCKED if step.why not in (WhyStays.HELD, WhyStays.STAGED_RUN):
            return eviction_sentence(NotExecuted(Why(step.why), _numbers(step.numbers)))
        case DrainStep.State.BLOCKED | DrainStep.State.STAYS | DrainStep.State.NEXT_RUN:
            return STAYS_SENTENCES[WhyStays(step.why)]
        case DrainStep.State.LEAVING if step.why == Why.BEING_DELETED:
            return "Leaves: it is being deleted."
    return _STEPS[DrainStep.State(step.state)]


_STEPS = {
    DrainStep.State.WAITING: "Waits for its turn.",
    DrainStep.State.LEAVING: "Its resources are being removed.",
    DrainStep.State.GONE: "Is gone.",
}
