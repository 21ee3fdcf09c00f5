"""The outcome of every cluster in a decision, as a table: 50 rows a page, filtered by outcome."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.explain.vocabulary import OUTCOME_ORDER, OUTCOME_WORDS, reason_sentence
from placements.web.badges import outcome_kind
from placements.web.request import PAGE_SIZE, number_of, word_from

_ORDER = {outcome: place for place, outcome in enumerate(OUTCOME_ORDER)}


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One cluster: its outcome, the reason that decided it, and further reasons against it."""

    cluster: str
    outcome: str
    kind: str
    was_here: bool
    why: str
    also: list[str]


@dataclass(frozen=True, slots=True)
class OutcomeTable:
    """One page of the table, with all rows that the filters leave and the number of each outcome."""

    found: tuple[ClusterOutcome, ...]
    rows: list[OutcomeRow]
    counts: list[tuple[str, str, int]]
    chosen: str
    total: int
    first: int
    last: int
    earlier: int | None
    later: int | None


def outcome_table(request: HttpRequest, outcomes: Sequence[ClusterOutcome]) -> OutcomeTable:
    """Return the page of these outcomes that the address selects: `?outcome=filtered&from=50`.

    Ordered by outcome, then picks by step, the outranked by rank, all others by name.
    """

    def order(one: ClusterOutcome) -> tuple[int, int, str]:
        facts = one.reasons[0].facts
        return _ORDER[one.outcome], int(facts.get("pick") or facts.get("rank") or 0), one.cluster

    chosen = word_from(request, "outcome", Outcome)
    counts = Counter(one.outcome for one in outcomes)
    found = tuple(sorted((one for one in outcomes if chosen in (None, one.outcome)), key=order))
    start = number_of(request.GET.get("from", "")) or 0
    start = start - start % PAGE_SIZE if start < len(found) else 0
    page = found[start : start + PAGE_SIZE]
    return OutcomeTable(
        found=found,
        rows=list(map(outcome_row, page)),
        counts=[(str(one), OUTCOME_WORDS[one], counts[one]) for one in _ORDER if counts[one]],
        chosen=str(chosen or ""),
        total=len(found),
        first=start + 1 if page else 0,
        last=start + len(page),
        earlier=max(0, start - PAGE_SIZE) if start else None,
        later=start + PAGE_SIZE if start + PAGE_SIZE < len(found) else None,
    )


def outcome_row(one: ClusterOutcome) -> OutcomeRow:
    first, *others = one.reasons
    return OutcomeRow(
        one.cluster,
        OUTCOME_WORDS[one.outcome],
        outcome_kind(one.outcome),
        one.stays,
        reason_sentence(first),
        list(map(reason_sentence, others)),
    )
