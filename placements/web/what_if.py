"""What-if analyses of cluster loss; every role may create them, as they change nothing on the fleet."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from clusters.filters import label_keys
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.model import DEFAULT_SEMANTICS
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_readers, may_operate
from fleetui.polling import polled
from placements.explain.charts.what_if import MOST_BARS, Bar, what_if_chart
from placements.explain.what_if import VARIANT_WORDS, impacts_sentence
from placements.models import Scenario
from placements.services.what_if.operations import (
    LONGEST_NAME,
    cancel_scenario,
    create_scenario,
    save_scenario,
)
from placements.services.what_if.queries import (
    PlacementImpact,
    Totals,
    Variant,
    done_count,
    impact_counts,
    outcomes_in,
    totals_in,
    waiting_before,
)
from placements.web.badges import Badge
from placements.web.request import (
    PAGE_SIZE,
    number_of,
    page_from,
    requested_table,
    unknown_words,
    word_from,
)

_MARKS = {
    PlacementImpact.STUCK: Badge("attention", "Unschedulable"),
    PlacementImpact.SHRINKS: Badge("attention", "Scaled down"),
    PlacementImpact.MOVES: Badge("progress", "Rescheduled"),
    PlacementImpact.CANNOT: Badge("pending", "Not evictable"),
    PlacementImpact.STAYS: Badge("healthy", "Unchanged"),
}
_NAMES_SHOWN = 20
ACTIONS = ("cancel", "save", "run-again")


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def what_if(request: HttpRequest) -> HttpResponse:
    """List the analyses with a form, or create one."""
    source = request.POST if request.method == "POST" else request.GET
    names = " ".join([source.get("clusters", ""), *source.getlist("cluster")]).replace(",", " ").split()
    labels = " ".join(source.getlist("label")).replace(",", " ").split()
    variant = source.get("variant", "")
    fields = {
        "names": list(dict.fromkeys(names)),
        "labels": [one.replace("=", ":", 1) for one in dict.fromkeys(labels)],
        "variant": variant if variant in Variant.values else str(Variant.LEAVE),
    }
    if request.method != "POST":
        return _form(request, fields)
    try:
        row = create_scenario(
            names=fields["names"], labels=fields["labels"], by=current_user(request), now=datetime.now(UTC)
        )
    except InvalidManifest as error:
        return _form(request, fields, errors=error.errors, status=422)
    answer = redirect("web:scenario", row.pk)
    answer["Location"] += f"?variant={fields['variant']}"
    return answer


def _form(
    request: HttpRequest, fields: dict[str, Any], *, errors: tuple[FieldError, ...] = (), status: int = 200
) -> HttpResponse:
    page = page_from(request, Scenario.objects.all(), order="-pk", unique="pk")
    counts = impact_counts(page.rows)
    context = {
        "names": "\n".join(fields["names"]),
        "labels": " ".join(one.replace(":", "=", 1) for one in fields["labels"]),
        "variant": fields["variant"],
        "variants": VARIANT_WORDS,
        "errors": errors,
        "keys": label_keys(),
        "rows": [
            (one, *(impacts_sentence(counts.get((one.pk, of), {})) for of in (Variant.LEAVE, Variant.CORDON)))
            for one in page.rows
        ],
        "after": page.after,
    }
    return render_page(request, "what_if/list.html", context, status=status)


@for_readers
@costly
@require_POST
def scenario_action(request: HttpRequest, number: int, action: str) -> HttpResponse:
    """Cancel an analysis, save it under a name, or run it again with the clusters of today."""
    scenario, user = get_object_or_404(Scenario, pk=number), current_user(request)
    if action != "run-again" and user.get_username() != scenario.created_by and not may_operate(user):
        raise PermissionDenied("Only its author and operators may change an analysis.")
    try:
        if action == "cancel":
            message = "Analysis canceled." if cancel_scenario(scenario) else "The analysis has ended already."
        elif action == "save":
            save_scenario(scenario, request.POST.get("name", "").strip())
            message = f"Analysis {scenario.name} saved." if scenario.name else "Name removed."
        else:
            same = {"names": scenario.clusters, "labels": (), "chosen_by": scenario.chosen_by}
            return redirect("web:scenario", create_scenario(**same, by=user, now=datetime.now(UTC)).pk)
    except InvalidManifest as error:
        messages.error(request, "; ".join(map(str, error.errors)))
        return redirect("web:scenario", number)
    messages.success(request, message)
    return redirect("web:scenario", number)


@for_readers
@require_safe
@polled
def scenario(request: HttpRequest, number: int) -> HttpResponse:
    """Show the impact on every placement; the page polls until all are evaluated."""
    row = get_object_or_404(Scenario, pk=number)
    choice = request.GET.get("variant", "")
    variant = choice if choice in Variant.values else str(Variant.LEAVE)
    rows, charts = outcomes_in(row, variant), []
    if row.is_answered:
        bars = [
            _bar(one.placement_name, _MARKS[PlacementImpact(one.impact)].words, Totals.of(one))
            for one in rows[:MOST_BARS]
        ]
        total = _bar("All placements", "", totals_in(row, variant))
        chart = what_if_chart(bars, total=total, in_all=rows.count())
        charts = [chart] if chart else []
    table = requested_table(request, charts)
    if table:
        return table
    counts, impact = impact_counts([row]), word_from(request, "impact", PlacementImpact)
    mine = counts.get((row.pk, variant), {})
    other = Variant.CORDON if variant == Variant.LEAVE else Variant.LEAVE
    rows = rows.filter(impact=impact) if impact else rows
    start = number_of(request.GET.get("from", "")) or 0
    outcomes = list(rows[start : start + PAGE_SIZE + 1])
    notes: dict[str, list[str]] = {}
    for one in outcomes:
        if one.note:
            notes.setdefault(one.note, []).append(one.placement_name)
    context = {
        "scenario": row,
        "variant": variant,
        "variants": VARIANT_WORDS,
        "unknown": unknown_words(request, variant=Variant.values, impact=PlacementImpact),
        "done": done_count(row),
        "before": 0 if row.is_answered else waiting_before(row),
        "charts": charts,
        "sentence": impacts_sentence(mine),
        "other": str(other),
        "other_sentence": impacts_sentence(counts.get((row.pk, other), {})),
        "impacts": [(one, _MARKS[one].words, mine[one]) for one in PlacementImpact if mine.get(one)],
        "impact": impact,
        "default_rules": str(DEFAULT_SEMANTICS),
        "rows": [(one, _MARKS[PlacementImpact(one.impact)]) for one in outcomes[:PAGE_SIZE]],
        "notes": notes,
        "longest_name": LONGEST_NAME,
        "may_change": row.created_by == request.user.get_username() or may_operate(request.user),
        "names": row.clusters[:_NAMES_SHOWN],
        "more_names": max(0, len(row.clusters) - _NAMES_SHOWN),
        "later": start + PAGE_SIZE if len(outcomes) > PAGE_SIZE else None,
        "earlier": max(0, start - PAGE_SIZE) if start else None,
    }
    return render_page(request, "what_if/scenario.html", context, fragment="what_if/_result.html")


def _bar(name: str, impact: str, totals: Totals) -> Bar:
    moves = min(totals.leaves, totals.joins)
    return Bar(name, impact, totals.before - totals.leaves, moves, totals.leaves - moves)
