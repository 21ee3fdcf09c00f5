"""The rebalance plan of a placement: what few moves repair, the steps, and the plan in progress."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_http_methods

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_operators, for_readers
from fleetui.polling import polled
from placements.explain.charts.rebalance import curve_chart
from placements.explain.rebalance import balance_sentence, repair_sentence
from placements.models import Placement, RebalancePlan
from placements.services.rebalance import MOST_MOVES, PLAN_ACTIONS, change_plan, preview_rebalance, start_plan
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.teams import of_placement
from placements.web.badges import Badge
from placements.web.request import number_of, requested_table

_BATCHES_SHOWN = 10
PLANS = {
    RebalancePlan.State.RUNNING: Badge("progress", "In progress"),
    RebalancePlan.State.PAUSED: Badge("suspended", "Paused"),
    RebalancePlan.State.STALE: Badge("outdated", "Outdated"),
    RebalancePlan.State.COMPLETED: Badge("healthy", "Completed"),
    RebalancePlan.State.STOPPED: Badge("suspended", "Stopped"),
    RebalancePlan.State.ABANDONED: Badge("suspended", "Abandoned"),
}


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
@polled
def rebalance(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the curve and the steps, or the progress; start, pause, resume or stop a plan."""
    placement = get_object_or_404(Placement, full_name=name)
    if request.method == "POST":
        return _change(request, name=name)
    return _page(request, placement)


@for_operators("rebalance placements", of=of_placement)
def _change(request: HttpRequest, *, name: str) -> HttpResponse:
    placement = get_object_or_404(Placement, full_name=name)
    by, now, action = current_user(request), datetime.now(UTC), request.POST.get("do", "")
    try:
        if action == "start":
            row = start_plan(name, moves=_moves(request.POST.get("moves", "")), by=by, now=now)
            done = f"Rebalance plan {row.number} of {name} started."
        elif action in PLAN_ACTIONS:
            number = number_of(request.POST.get("plan", "")) or 0
            row = change_plan(name, number, action, by=by, now=now)
            done = f"Rebalance plan {row.number} of {name}: {PLANS[RebalancePlan.State(row.state)].words}."
        else:
            allowed = ", ".join(["start", *PLAN_ACTIONS])
            raise InvalidManifest.of("do", "not-one-of", f"Unsupported value: {action!r}", allowed)
    except InvalidManifest as error:
        return _page(request, placement, errors=error.errors, status=422)
    except (ActionNotAllowed, LookupError) as refused:
        return _page(request, placement, refused=str(refused), status=409)
    messages.success(request, done)
    return redirect("web:placement-rebalance", name)


def _moves(text: str) -> int | None:
    if not text.strip():
        return None
    if (number := number_of(text.strip())) is None or number > MOST_MOVES:
        message = f"Invalid value: {text[:20]!r}"
        raise InvalidManifest.of("moves", "out-of-range", message, f"0 to {MOST_MOVES}")
    return number


def _page(
    request: HttpRequest,
    placement: Placement,
    *,
    errors: tuple[FieldError, ...] = (),
    refused: str = "",
    status: int = 200,
) -> HttpResponse:
    last = placement.rebalance_plans.order_by("-number").first()
    context: dict[str, Any] = {
        "placement": placement,
        "last": last,
        "state": PLANS[RebalancePlan.State(last.state)] if last else None,
        "batches": _progress(last) if last else [],
        "errors": errors,
        "refused": refused,
        "moves": request.GET.get("moves", ""),
    }
    if last is None or not last.is_active:
        try:
            moves = _moves(context["moves"])
        except InvalidManifest as error:
            moves, context["errors"], status = None, error.errors, 422
        if last and last.state == RebalancePlan.State.STALE and moves is None and last.moves_left:
            moves = context["left"] = last.moves_left
        preview = preview_rebalance(placement, moves=moves)
        context |= {"preview": preview, "chart": None}
        if preview.plan is not None:
            chart, most = curve_chart(preview.plan), None if "all" in request.GET else _BATCHES_SHOWN
            if table := requested_table(request, [chart] if chart else []):
                return table
            context |= {
                "chart": chart,
                "today": balance_sentence(preview.plan),
                "reached": repair_sentence(preview.plan),
                "planned": list(enumerate(preview.batches[:most], start=1)),
                "more": len(preview.batches[most:]) if most else 0,
            }
    fragment = "rebalance/_progress.html" if request.method != "POST" else None
    return render_page(request, "rebalance/rebalance.html", context, fragment=fragment, status=status)


def _progress(row: RebalancePlan) -> list[tuple[int, Badge, Any]]:
    """Return the batches around the one in progress, each with its state."""
    start = max(0, min(row.done - 2, len(row.batches) - _BATCHES_SHOWN))
    states = []
    for at, batch in enumerate(row.batches[start : start + _BATCHES_SHOWN], start=start):
        badge = Badge("pending", "Pending")
        if at < row.done:
            badge = Badge("healthy", "Completed")
        elif at == row.done and row.is_moving:
            badge = Badge("progress", "In progress")
        states.append((at + 1, badge, batch))
    return states
