"""Disruption budgets and evictions of a hub: lists, and one of each."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from fleetui.apimachinery.yaml import dump_yaml
from fleetui.bulk import first_or_raise
from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.models import DisruptionBudget, Eviction
from placements.services.disruption.queries import (
    budget_states,
    budgets_matching,
    eviction_rows,
    evictions_matching,
)
from placements.services.filters import LIST_FILTERS
from placements.web.filter_bar import Facet, filter_bar, read_filters
from placements.web.request import page_from

MOST_BUDGETS, MOST_OF_A_BUDGET = 200, 20
LEVELS = {
    Eviction.Outcome.PENDING: ("progress", "Pending"),
    Eviction.Outcome.EXECUTED: ("healthy", "Executed"),
    Eviction.Outcome.NOT_EXECUTED: ("attention", "Not executed"),
    Eviction.Outcome.INVALID: ("failed", "Invalid"),
}


@for_readers
@require_safe
def disruptions(request: HttpRequest) -> HttpResponse:
    """List disruption budgets with what they allow now, and evictions, the newest first."""
    filters = read_filters(request, "evictions", outcome=Eviction.Outcome.values)
    text = filters.pop("q")
    page = page_from(
        request,
        evictions_matching(text=text, **filters),
        order="-id",
        unique="id",
    )
    budgets = list(
        budgets_matching(text=filters["placement"] or text).order_by("name")[
            :MOST_BUDGETS
        ]
    )
    return render_page(
        request,
        "disruptions/list.html",
        {
            "budgets": budget_states(budgets),
            "evictions": [
                (row, *LEVELS[Eviction.Outcome(row.row.outcome)])
                for row in eviction_rows(page.rows)
            ],
            "after": page.after,
            "bar": filter_bar(
                request,
                LIST_FILTERS["evictions"],
                [
                    Facet(
                        "outcome",
                        "Outcome",
                        [
                            (outcome.value, LEVELS[outcome][1], None)
                            for outcome in Eviction.Outcome
                        ],
                    )
                ],
                outcome=Eviction.Outcome.values,
            ),
            "most_budgets": MOST_BUDGETS,
        },
        fragment="disruptions/_list.html",
    )


@for_readers
@require_safe
def budget(request: HttpRequest, name: str) -> HttpResponse:
    """Show a budget: its limit, its arithmetic now, the last evictions of its placement."""
    row = first_or_raise(
        DisruptionBudget.objects.filter(name=name),
        Http404(f"Disruption budget {name} not found on the hub."),
    )
    [state] = budget_states([row])
    evictions = list(
        evictions_matching(placement=name).order_by("-id")[:MOST_OF_A_BUDGET]
    )
    return render(
        request,
        "disruptions/budget.html",
        {
            "budget": state,
            "evictions": [
                (eviction_row, *LEVELS[Eviction.Outcome(eviction_row.row.outcome)])
                for eviction_row in eviction_rows(evictions)
            ],
            "manifest": dump_yaml(row.document),
        },
    )


@for_readers
@require_safe
def eviction(request: HttpRequest, number: int) -> HttpResponse:
    row = get_object_or_404(
        Eviction.objects.select_related("placement", "drain"), pk=number
    )
    [target] = eviction_rows([row])
    level, word = LEVELS[Eviction.Outcome(row.outcome)]
    manifest = dump_yaml(row.document) if row.document else ""
    return render(
        request,
        "disruptions/eviction.html",
        {"eviction": target, "level": level, "word": word, "manifest": manifest},
    )
