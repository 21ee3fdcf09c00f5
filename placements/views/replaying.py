"""The replay of a decision: one step with its groups, its candidates and what decided it."""

from dataclasses import dataclass

from django.http import Http404, HttpRequest

from placements.explain.ranking import Ranking, ranking_of
from placements.explain.step_wording import step_sentences
from placements.queries.records import AnyDecision, decision_of
from placements.scheduling.decision import Decision as DecisionValue
from placements.scheduling.replay import Replay, Step


@dataclass(frozen=True, slots=True)
class Played:
    """One step as the page shows it; `is_single` says that there is one ranking instead of steps."""

    step: Step
    number: int
    total: int
    earlier: int | None
    later: int | None
    is_single: bool
    sentences: list[str]
    ranking: Ranking


def step_from(request: HttpRequest, value: DecisionValue) -> int | None:
    """Read the step that the address asks for, the last one without; None for a decision without steps.

    Raises Http404 for a step that there was not.
    """
    total, given = value.number_of_rounds, request.GET.get("step", "")
    if not given:
        return total or None
    number = int(given) if given.isdecimal() and len(given) < 9 else 0
    if not 1 <= number <= total:
        raise Http404(f"There is no step {given[:10]}: this decision has {total}.")
    return number


def played(row: AnyDecision, number: int, asked: str) -> Played:
    """Replay one step."""
    value = decision_of(row)
    replay, total = Replay(value), value.number_of_rounds
    step = replay.step(number)
    return Played(
        step,
        number,
        total,
        number - 1 if number > 1 else None,
        number + 1 if number < total else None,
        is_single=step.cut is not None or not step.spreads,
        sentences=step_sentences(replay, step),
        ranking=ranking_of(replay, number, asked),
    )
