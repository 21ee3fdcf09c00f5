"""What-if: ask what every placement would do if some clusters went, and read the answers.

Whoever reads may ask: an answer changes nothing on the fleet.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods, require_safe

from clusters.listing import label_keys
from fleetui.access import for_readers
from fleetui.htmx import render_page
from fleetui.unchanged import unchanged_since
from placements.explain.charts.chart import Chart
from placements.explain.charts.what_if import MOST_BARS, Bar, what_if_chart
from placements.explain.what_if_wording import VARIANT_WORDS, fates_sentence
from placements.models import HypotheticalDecision, Scenario
from placements.operations.scenarios import ask_what_if
from placements.queries.what_if import (
    Fate,
    Totals,
    Variant,
    fate_counts,
    outcomes_in,
    scenario_pulse,
    totals_in,
)
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.semantics import DEFAULT_SEMANTICS
from placements.views.chart_tables import asked_table
from placements.views.lists import PAGE_SIZE, page_from, unknown_words, word_from
from placements.views.people import user_of
from placements.views.states import State

_MARKS = {
    Fate.STUCK: State("blocked", "stuck"),
    Fate.SHRINKS: State("attention", "shrinks"),
    Fate.MOVES: State("progress", "moves"),
    Fate.CANNOT: State("neutral", "cannot be moved"),
    Fate.STAYS: State("ok", "stays as it is"),
}
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """One line of the list: what was supposed, and how both variants come out."""

    scenario: Scenario
    leave: str
    cordon: str


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One placement of a scenario."""

    outcome: HypotheticalDecision
    state: State

    @property
    def semantics(self) -> str:
        """Name its rules where they are not those that hold without a word."""
        named = self.outcome.placement.semantics if self.outcome.placement else DEFAULT_SEMANTICS
        return "" if named == DEFAULT_SEMANTICS else named


@for_readers
@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """List what was asked before, and take a new question."""
    given = _given(request)
    if request.method != "POST":
        return _form(request, given)
    try:
        row = ask_what_if(
            names=given["names"], labels=given["labels"], by=user_of(request), now=datetime.now(UTC)
        )
    except Faults as found:
        return _form(request, given, faults=found.faults, status=422)
    answer = redirect("pages:scenario", row.pk)
    answer["Location"] += f"?variant={given['variant']}"
    return answer


def _given(request: HttpRequest) -> dict[str, Any]:
    """Read the form, or what a link from another page suggests."""
    source = request.POST if request.method == "POST" else request.GET
    names = " ".join([source.get("clusters", ""), *source.getlist("cluster")]).replace(",", " ").split()
    written = " ".join(source.getlist("label")).replace(",", " ").split()
    variant = source.get("variant", "")
    return {
        "names": list(dict.fromkeys(names)),
        "labels": [one.replace("=", ":", 1) for one in dict.fromkeys(written)],
        "variant": variant if variant in Variant.values else str(Variant.LEAVE),
    }


def _form(
    request: HttpRequest, given: dict[str, Any], *, faults: tuple[Fault, ...] = (), status: int = 200
) -> HttpResponse:
    page = page_from(request, Scenario.objects.all(), order="-pk", unique="pk")
    context = {
        "names": "\n".join(given["names"]),
        "labels": " ".join(one.replace(":", "=", 1) for one in given["labels"]),
        "variant": given["variant"],
        "variants": VARIANT_WORDS,
        "faults": faults,
        "keys": label_keys(),
        "rows": _rows(page.rows),
        "after": page.after,
    }
    return render_page(request, "what_if/list.html", context, status=status)


def _rows(scenarios: list[Scenario]) -> list[ScenarioRow]:
    counts = fate_counts(scenarios)
    return [
        ScenarioRow(
            one,
            *(
                fates_sentence(counts.get((one.pk, variant), {}))
                for variant in (Variant.LEAVE, Variant.CORDON)
            ),
        )
        for one in scenarios
    ]


@for_readers
@require_safe
def scenario(request: HttpRequest, number: int) -> HttpResponse:
    """Show what every placement would do; until all were asked, the page asks again and again."""
    found = get_object_or_404(Scenario, pk=number)
    variant, version = _variant(request), scenario_pulse(number)
    if same := unchanged_since(request, version, partial(scenario_pulse, number)):
        return same
    charts = _charts(found, variant) if found.is_answered else []
    table = asked_table(request, charts)
    if table:
        return table
    context = {
        "scenario": found,
        "variant": variant,
        "variants": VARIANT_WORDS,
        "unknown": unknown_words(request, variant=Variant.values, fate=Fate),
        "version": version,
        "done": version.partition(".")[0],
        "charts": charts,
        **_outcomes(request, found, variant),
    }
    return render_page(request, "what_if/scenario.html", context, fragment="what_if/_answer.html")


def _variant(request: HttpRequest) -> str:
    given = request.GET.get("variant", "")
    return given if given in Variant.values else str(Variant.LEAVE)


def _charts(scenario: Scenario, variant: str) -> list[Chart]:
    rows = list(outcomes_in(scenario, variant)[:MOST_BARS])
    bars = [_bar(one.placement_name, str(_MARKS[Fate(one.fate)].words), Totals.of(one)) for one in rows]
    total = _bar("all placements", "", totals_in(scenario, variant))
    chart = what_if_chart(bars, total=total, in_all=outcomes_in(scenario, variant).count())
    return [chart] if chart else []


def _bar(name: str, fate: str, totals: Totals) -> Bar:
    moves = min(totals.leaves, totals.joins)
    return Bar(name, fate, totals.before - totals.leaves, moves, totals.leaves - moves)


def _outcomes(request: HttpRequest, scenario: Scenario, variant: str) -> dict[str, Any]:
    """Give one page of the placements, the worst first, of one fate where that is asked for."""
    counts, fate = fate_counts([scenario]), word_from(request, "fate", Fate)
    mine = counts.get((scenario.pk, variant), {})
    other = Variant.CORDON if variant == Variant.LEAVE else Variant.LEAVE
    rows = outcomes_in(scenario, variant)
    rows = rows.filter(fate=fate) if fate else rows
    start = _start(request)
    shown = list(rows[start : start + PAGE_SIZE + 1])
    return {
        "sentence": fates_sentence(mine),
        "other": str(other),
        "other_sentence": fates_sentence(counts.get((scenario.pk, other), {})),
        "fates": [(one, _MARKS[one].words, mine[one]) for one in Fate if mine.get(one)],
        "fate": fate,
        "rows": [OutcomeRow(one, _MARKS[Fate(one.fate)]) for one in shown[:PAGE_SIZE]],
        "notes": _notes(shown),
        "names": scenario.clusters[:_NAMES_SHOWN],
        "more_names": max(0, len(scenario.clusters) - _NAMES_SHOWN),
        "later": start + PAGE_SIZE if len(shown) > PAGE_SIZE else None,
        "earlier": max(0, start - PAGE_SIZE) if start else None,
    }


def _notes(outcomes: list[HypotheticalDecision]) -> dict[str, list[str]]:
    """Give why the two answers differ, with the placements of which that holds."""
    notes: dict[str, list[str]] = {}
    for one in outcomes:
        if one.note:
            notes.setdefault(one.note, []).append(one.placement_name)
    return notes


def _start(request: HttpRequest) -> int:
    given = request.GET.get("from", "")
    return int(given) if given.isdecimal() and len(given) < 9 else 0
