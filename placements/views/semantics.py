"""One decision under the rules of all four systems, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.explain.difference_wording import apart_words, difference_parts, later_partings
from placements.explain.wording import headline
from placements.queries.records import AnyDecision, decision_of, decisions_named
from placements.queries.semantics import SideBySide, side_by_side, side_by_side_of_draft
from placements.queries.what_if import hypothetical_named
from placements.scheduling.comparison import placed
from placements.scheduling.decision import Decision
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import ClusterResourcePlacement

_MOST_ROWS = 100


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom one semantics has at one place, and whether that is whom the one they are compared with has."""

    semantics: Semantics
    cluster: str
    is_kept: bool
    is_agreed: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One semantics: how it came out, what was left out for it, or why it cannot be asked."""

    semantics: Semantics
    is_own: bool
    headline: str
    apart: str
    is_fulfilled: bool
    notes: list[str]
    refusal: str


@for_readers
@require_safe
def semantics(request: HttpRequest, prefix: str) -> HttpResponse:
    """Show the decision with this id under fleet, kubefleet, ocm and kubernetes semantics."""
    found: Sequence[AnyDecision] = decisions_named(prefix) or hypothetical_named(prefix)
    if not found:
        raise Http404(f"No decision has an id that begins with {prefix[:40]}.")
    if len(found) > 1 or found[0].record.decision_id != prefix:
        return redirect("pages:decision", prefix)
    return render_page(request, "decisions/semantics.html", _context(found[0]))


def _context(row: AnyDecision) -> dict[str, Any]:
    value = decision_of(row)
    sides = side_by_side(value, name=row.placement_name)
    return {"decision": row, **sides_context(sides, own=value.cycle.semantics)}


def draft_sides(draft: ClusterResourcePlacement) -> dict[str, Any]:
    """Give what `placements/_draft_semantics.html` shows of an unsaved placement. Raises Faults."""
    return sides_context(side_by_side_of_draft(draft), own=draft.semantics)


def sides_context(sides: SideBySide, *, own: Semantics) -> dict[str, Any]:
    """Give what `decisions/_sides.html` shows."""
    rows, difference = sides.comparison.rows, sides.comparison.first_difference
    parts = difference_parts(sides.comparison)
    return {
        "columns": [_column(one, sides, own=own) for one in Semantics],
        "parts": parts,
        "base": sides.comparison.base,
        "all_words": "All that can be asked" if sides.refused else "All",
        "is_same_set": sides.comparison.is_same_set,
        "partings": later_partings(sides.comparison) if parts else (),
        "differs_at": difference.place if difference else 0,
        "rows": [_choices(choices, sides) for choices in rows[:_MOST_ROWS]],
        "more_rows": max(0, len(rows) - _MOST_ROWS),
    }


def _column(semantics: Semantics, sides: SideBySide, *, own: Semantics) -> Column:
    refusal = sides.refused.get(semantics, "")
    decision = sides.comparison.decisions.get(semantics)
    return Column(
        semantics,
        semantics is own,
        "" if decision is None else headline(decision),
        "" if decision is None else _apart(decision, sides.comparison.decisions.get(own)),
        decision is not None and decision.is_fulfilled,
        [f"{one.path}: {one.message}" for one in sides.warnings.get(semantics, ())],
        refusal,
    )


def _apart(decision: Decision, own: Decision | None) -> str:
    """Say whom a semantics has in the end that the own one has not, and the other way round."""
    if own is None or own is decision:
        return ""
    here, there = set(placed(decision)), set(placed(own))
    return apart_words(sorted(here - there), sorted(there - here))


def _choices(choices: dict[Semantics, str | None], sides: SideBySide) -> list[Choice]:
    decisions, own = sides.comparison.decisions, choices.get(sides.comparison.base)
    return [
        Choice(one, name or "", name in decisions[one].kept, name == own)
        for one in Semantics
        for name in [choices.get(one)]
        if one in decisions
    ]
