"""Rescheduling of a placement, all at once or with few moves: what it would change, and doing just that."""

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods

from clusters.fleet import collector_paused
from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.audit import events_since
from fleetui.concurrency import RevisionConflict
from fleetui.middleware import costly
from fleetui.permissions import for_readers
from placements.engine.scheduling.decision import Decision
from placements.explain.moves import balance_sentence, repair_sentence
from placements.explain.preview import rescheduling_words
from placements.models import Placement
from placements.services.actions import ACTIONS, ActionKind
from placements.services.editor.operations import preview_reschedule
from placements.services.placements import UnschedulesEverything
from placements.services.rescheduling import (
    FEWEST,
    confirm_reschedule,
    moves_from,
    plan_few_moves,
    reschedule_with_few_moves,
)
from placements.services.results import PLACEMENT
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.scheduling import PreviewOutdatedError
from placements.web.activity import event_rows
from placements.web.request import (
    actor,
    for_action,
    is_confirmed,
    number_of,
    redirect_after,
)
from placements.web.review import (
    decision_context,
    names_after,
    names_changed_since,
    rollout_sentence,
)


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def reschedule(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what rescheduling a placement would change, or do just what was shown.

    `?moves=` is the maximum of moves, or `fewest`; without it, all at once. `?back=` is the cluster that the
    placement is to be restored to, from whose page this was opened.
    """
    placement = get_object_or_404(Placement, full_name=name)
    if request.method == "POST":
        return _confirm(request, name=name)
    return _page(request, placement)


@for_action(ActionKind.ROLLING, "reschedule")
def _confirm(request: HttpRequest, *, name: str) -> HttpResponse:
    placement = get_object_or_404(Placement, full_name=name)
    expected = number_of(request.POST.get("revision", ""), digits=18)
    if expected is None:
        return _page(request, placement, status=409)
    previewed = {
        **actor(request),
        "decision_id": request.POST.get("decision", ""),
        "expected": expected,
    }
    try:
        if moves := request.GET.get("moves", ""):
            reschedule_with_few_moves(name, moves=moves_from(moves), **previewed)
        else:
            confirm_reschedule(name, confirmed=is_confirmed(request), **previewed)
    except UnschedulesEverything as error:
        return _page(request, placement, status=409, empties=error)
    except RevisionConflict:
        placement.refresh_from_db()
        events = event_rows(events_since(PLACEMENT, name, expected))
        return _page(
            request, placement, status=409, outdated="placement", events=events
        )
    except PreviewOutdatedError:
        placement.refresh_from_db()
        return _page(request, placement, status=409, outdated="fleet")
    except (ActionNotAllowed, InvalidManifest):
        return _page(request, placement, status=409)
    done = f"Placement {name} rescheduled."
    if back := _cluster_to_restore(request):
        return redirect_after(request, done, "web:cluster-drain", back)
    return redirect_after(request, done, "web:placement", name)


def _cluster_to_restore(request: HttpRequest) -> str:
    name = request.GET.get("back", "")
    return name if name and MemberCluster.objects.filter(name=name).exists() else ""


@collector_paused()
def _page(
    request: HttpRequest, placement: Placement, *, status: int = 200, **results: Any
) -> HttpResponse:
    """Show the preview; `results` say why a confirmation was refused: outdated, events, empties."""
    decision: Decision | None = None
    moves = request.GET.get("moves", FEWEST if placement.is_mirrored else "")
    context: dict[str, Any] = {
        "placement": placement,
        "now": datetime.now(UTC),
        "refusal": ACTIONS[ActionKind.ROLLING, "reschedule"].why_not(placement, None),
        "outdated": results.get("outdated", ""),
        "events": results.get("events", ()),
        "empties": results.get("empties"),
        "back": _cluster_to_restore(request),
        "moves": moves,
        "schedule": None,
        "explanation": "A move is one cluster that leaves." if moves else "",
        "errors": (),
    }
    try:
        if moves and not context["refusal"]:
            few = plan_few_moves(placement, moves_from(moves))
            decision = few.decision
            context |= {
                "few": few,
                "today": balance_sentence(few.plan),
                "reached": repair_sentence(few.plan),
                "refusal": few.refusal,
                "evicted": few.plan.leaves[: few.followed],
            }
        if not context["refusal"] and not placement.is_mirrored:
            schedule = preview_reschedule(placement, decision)
            context |= {
                **decision_context(schedule),
                "rollout": rollout_sentence(
                    schedule, schedule.waves(now=datetime.now(UTC))
                ),
                "explanation": context["explanation"]
                or rescheduling_words(schedule.decision.cycle),
                "after": names_after(schedule),
                "moved": names_changed_since(request, schedule),
            }
    except InvalidManifest as error:
        context["errors"] = error.errors
    except ActionNotAllowed as refused:
        context["refusal"] = str(refused)
    return render(request, "placements/reschedule.html", context, status=status)
