"""One decision under the rules of all four systems, side by side."""

from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from fleetui.apimachinery.model import Semantics
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_readers
from placements.engine.scheduling.comparison import placed
from placements.explain.comparison import (
    apart_words,
    difference_parts,
    later_divergences,
)
from placements.explain.vocabulary import headline
from placements.services.decisions.compare_semantics import (
    SideBySide,
    side_by_side,
)
from placements.services.decisions.records import DecisionView, decisions_named

_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class SemanticsOption:
    """The cluster of one semantics at one rank; `is_agreed`: the base of the comparison has it there too."""

    semantics: Semantics
    cluster: str
    is_kept: bool
    is_agreed: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One semantics: its result, what it ignores of the policy, or why it cannot be evaluated."""

    semantics: Semantics
    is_own: bool
    headline: str
    apart: str
    is_fulfilled: bool
    notes: list[str]
    refusal: str


@for_readers
@costly
@require_safe
def semantics(request: HttpRequest, prefix: str) -> HttpResponse:
    rows: list[Any] = list(decisions_named(prefix))
    if not rows:
        raise Http404(f"No decision has an id that starts with {prefix[:40]}.")
    if len(rows) > 1 or rows[0].record.decision_id != prefix:
        return redirect("web:decision", prefix)
    view = DecisionView(rows[0])
    sides = side_by_side(view.value, name=view.row.placement_name)
    context = {
        "decision": view.row,
        **sides_context(sides, own=view.value.cycle.semantics),
    }
    return render_page(request, "decisions/semantics.html", context)


def sides_context(sides: SideBySide, *, own: Semantics) -> dict[str, Any]:
    comparison = sides.comparison
    decisions, rows, difference = (
        comparison.decisions,
        comparison.rows,
        comparison.first_difference,
    )
    parts = difference_parts(comparison)

    options = []
    for choices in rows[:_MOST_ROWS]:
        names = {one: choices.get(one) for one in Semantics if one in decisions}
        base = choices.get(comparison.base)
        options.append(
            [
                SemanticsOption(
                    one, name or "", name in decisions[one].kept, name == base
                )
                for one, name in names.items()
            ]
        )
    return {
        "columns": [_column(one, sides, own=own) for one in Semantics],
        "parts": parts,
        "base": comparison.base,
        "all_words": "All applicable rules" if sides.refused else "All rules",
        "is_same_set": comparison.is_same_set,
        "divergences": later_divergences(comparison) if parts else (),
        "differs_at": difference.place if difference else 0,
        "rows": options,
        "more_rows": max(0, len(rows) - _MOST_ROWS),
    }


def _column(semantics: Semantics, sides: SideBySide, *, own: Semantics) -> Column:
    decision = sides.comparison.decisions.get(semantics)
    own_decision = sides.comparison.decisions.get(own)
    apart = ""
    if (
        decision is not None
        and own_decision is not None
        and own_decision is not decision
    ):
        here, there = set(placed(decision)), set(placed(own_decision))
        apart = apart_words(sorted(here - there), sorted(there - here))
    return Column(
        semantics,
        semantics is own,
        "" if decision is None else headline(decision),
        apart,
        decision is not None and decision.is_fulfilled,
        [
            f"{warning.path}: {warning.message}"
            for warning in sides.warnings.get(semantics, ())
        ],
        sides.refused.get(semantics, ""),
    )
