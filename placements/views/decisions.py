"""One decision: how it came out, from which inputs, who was picked, and why not the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.explain.advice_wording import (
    change_words,
    effects_words,
    failure_sentences,
    untried_sentences,
)
from placements.explain.charts.chart import Chart
from placements.explain.charts.skews import skew_chart
from placements.explain.sentences import policy_sentence
from placements.explain.wording import bindings_sentence, headline, round_sentence
from placements.models import Decision, HypotheticalDecision
from placements.queries.records import advice_of, decision_of, decisions_named, traps_of, ways_of
from placements.queries.what_if import hypothetical_named
from placements.scheduling.decision import Decision as DecisionValue
from placements.scheduling.decision import Picked
from placements.scheduling.outcomes import Outcome
from placements.scheduling.replay import Replay
from placements.views.chart_tables import asked_table
from placements.views.outcomes import OutcomeRow, outcome_row, outcome_table

_PICKS_SHOWN = 50
_MOST_LOOKS = 100_000


@dataclass(frozen=True, slots=True)
class PickRow:
    """One pick with its scores, and what decided the step."""

    place: int
    picked: Picked
    how: str


@dataclass(frozen=True, slots=True)
class Why:
    """Why one cluster is where it is, and which single changes would help or not."""

    outcome: OutcomeRow
    helps: list[tuple[str, str]]
    fails: list[str]
    untried: list[str]
    is_placed: bool


@for_readers
@require_safe
def decision(request: HttpRequest, prefix: str) -> HttpResponse:
    """Show the decision with this id, or the one whose id begins so."""
    found: Sequence[Decision | HypotheticalDecision] = decisions_named(prefix) or hypothetical_named(prefix)
    if not found:
        raise Http404(f"No decision has an id that begins with {prefix[:40]}.")
    if len(found) > 1:
        return render(request, "decisions/several.html", {"prefix": prefix, "decisions": found})
    if found[0].record.decision_id != prefix:
        target = redirect("pages:decision", found[0].record.decision_id)
        query = request.GET.urlencode()
        target["Location"] += f"?{query}" if query else ""
        return target
    table = asked_table(request, decision_charts(found[0]))
    return table or render_page(request, "decisions/decision.html", _context(request, found[0]))


def decision_charts(row: Decision | HypotheticalDecision) -> list[Chart]:
    """Draw what the record of a decision shows."""
    return [chart for chart in (skew_chart(decision_of(row)),) if chart]


def _context(request: HttpRequest, row: Decision | HypotheticalDecision) -> dict[str, Any]:
    value = decision_of(row)
    cycle, cluster = value.cycle, request.GET.get("cluster", "").strip()
    return {
        "decision": row,
        **_scenario(row),
        "value": value,
        "headline": headline(value),
        "sentence": policy_sentence(cycle.policy),
        "traps": traps_of(row),
        "ways": ways_of(row),
        "bindings": bindings_sentence(cycle) if cycle.bindings else "none: nothing was placed before",
        "picks": _picks(value),
        "more_picks": max(0, len(value.picked_names) - _PICKS_SHOWN),
        "clusters_count": len(cycle.fleet),
        "charts": decision_charts(row),
        "outcomes": outcome_table(request, row),
        "asked": cluster,
        "why": _why(row, cluster) if cluster in cycle.fleet.positions else None,
    }


def _scenario(row: Decision | HypotheticalDecision) -> dict[str, Any]:
    """Name the question that a hypothetical decision answers."""
    if isinstance(row, HypotheticalDecision):
        return {"scenario": row.scenario, "variant": row.variant}
    return {"scenario": None, "variant": ""}


def _picks(value: DecisionValue) -> list[PickRow]:
    """Give the first picks; what decided a step is told while looking it up takes no time to speak of."""
    shown = value.picked[:_PICKS_SHOWN]
    has_steps = value.number_of_rounds > 1 and len(shown) * len(value.cycle.fleet) <= _MOST_LOOKS
    replay = Replay(value)
    return [
        PickRow(place, picked, round_sentence(replay.step(place)) if has_steps else "")
        for place, picked in enumerate(shown, start=1)
    ]


def _why(row: Decision | HypotheticalDecision, cluster: str) -> Why:
    advice = advice_of(row, cluster)
    return Why(
        outcome_row(advice.outcome),
        [(change_words(one.change), effects_words(one)) for one in advice.helps],
        failure_sentences(advice.fails),
        untried_sentences(advice.not_tried),
        is_placed=advice.outcome.outcome in (Outcome.PICKED, Outcome.KEPT),
    )
