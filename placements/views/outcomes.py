"""What became of every cluster in a decision, as a table: 50 a page, by outcome where that is asked for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from placements.explain.wording import OUTCOME_ORDER, reason_sentence
from placements.queries.records import AnyDecision, outcomes_of
from placements.scheduling.outcomes import ClusterOutcome, Outcome
from placements.views.lists import PAGE_SIZE, word_from
from placements.views.states import outcome_mark

_ORDER = {outcome: place for place, outcome in enumerate(OUTCOME_ORDER)}


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One cluster: its outcome, the reason that decided it, and what else speaks against it."""

    cluster: str
    outcome: str
    mark: str
    was_here: bool
    why: str
    also: list[str]


@dataclass(frozen=True, slots=True)
class OutcomeTable:
    """One page of the table, with all that were found and the number of clusters of each outcome."""

    found: tuple[ClusterOutcome, ...]
    rows: list[OutcomeRow]
    counts: list[tuple[str, int]]
    chosen: str
    total: int
    first: int
    last: int
    earlier: int | None
    later: int | None


def outcome_table(
    request: HttpRequest, decision: AnyDecision, among: Sequence[ClusterOutcome] | None = None
) -> OutcomeTable:
    """Give the page of the table that the address asks for: `?outcome=filtered&from=50`.

    `among` are those that other filters leave.
    """
    everyone = outcomes_of(decision) if among is None else among
    chosen = word_from(request, "outcome", Outcome)
    counted = Counter(one.outcome for one in everyone)
    found = tuple(sorted((one for one in everyone if chosen in (None, one.outcome)), key=_place))
    start = _start(request, len(found))
    shown = found[start : start + PAGE_SIZE]
    return OutcomeTable(
        found=found,
        rows=list(map(outcome_row, shown)),
        counts=[(str(outcome), counted[outcome]) for outcome in _ORDER if counted[outcome]],
        chosen=str(chosen or ""),
        total=len(found),
        first=start + 1 if shown else 0,
        last=start + len(shown),
        earlier=max(0, start - PAGE_SIZE) if start else None,
        later=start + PAGE_SIZE if start + PAGE_SIZE < len(found) else None,
    )


def outcome_row(one: ClusterOutcome) -> OutcomeRow:
    """Put one outcome into words."""
    first, *others = one.reasons
    return OutcomeRow(
        one.cluster,
        str(one.outcome),
        outcome_mark(one.outcome),
        one.stays,
        reason_sentence(first),
        list(map(reason_sentence, others)),
    )


def _place(one: ClusterOutcome) -> tuple[int, int, str]:
    """Order by outcome, picks by step, the outranked by rank, all others by name."""
    facts = one.reasons[0].facts
    return _ORDER[one.outcome], int(facts.get("pick") or facts.get("rank") or 0), one.cluster


def _start(request: HttpRequest, total: int) -> int:
    given = request.GET.get("from", "")
    start = int(given) if given.isdecimal() and len(given) < 9 else 0
    return start - start % PAGE_SIZE if start < total else 0
