"""Scheduling a placement afresh: what deciding it from scratch would change, and the button that does it."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from fleetui.access import for_operators
from fleetui.events import events_since
from fleetui.models import Event
from fleetui.revisions import StaleEditError
from placements.explain.previewing import afresh_words
from placements.models import Placement
from placements.operations.as_seen import PreviewOutdatedError
from placements.operations.emptying import EmptiesPlacementError
from placements.operations.placements import PLACEMENT
from placements.operations.rescheduling import reschedule_as_seen, reschedule_refusal
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.drafts import look_afresh
from placements.scheduling.faults import Faults
from placements.scheduling.spec import parse_placement
from placements.views.as_reviewed import moved_since, names_after
from placements.views.editor_showing import decided
from placements.views.happenings import happening_rows
from placements.views.people import is_confirmed, user_of


@for_operators("schedule placements afresh")
@require_http_methods(["GET", "HEAD", "POST"])
def schedule_afresh(request: HttpRequest, name: str) -> HttpResponse:
    """Show what deciding a placement from scratch would change, or do just what was shown."""
    found = get_object_or_404(Placement, name=name)
    if request.method != "POST":
        return _page(request, found)
    seen = _revision_seen(request)
    if seen is None:
        return _page(request, found, status=409)
    try:
        _reschedule(request, name, seen)
    except EmptiesPlacementError as error:
        return _page(request, found, status=409, empties=error)
    except (StaleEditError, PreviewOutdatedError) as error:
        is_stale = isinstance(error, StaleEditError)
        changes = events_since(PLACEMENT, name, seen) if is_stale else []
        found.refresh_from_db()
        return _page(request, found, status=409, outdated="placement" if is_stale else "fleet", since=changes)
    except HandRefusedError:
        return _page(request, found, status=409)
    messages.success(request, f"{name} is decided from scratch.")
    back = _back(request)
    return redirect("pages:drain-cluster", back) if back else redirect("pages:placement", name)


def _back(request: HttpRequest) -> str:
    """Read to which cluster the placement is to be brought back, and from whose page this was opened."""
    given = request.GET.get("back", "")
    return given if MemberCluster.objects.filter(name=given).exists() else ""


def _revision_seen(request: HttpRequest) -> int | None:
    given = request.POST.get("revision", "")
    return int(given) if given.isdecimal() and len(given) < 19 else None


def _reschedule(request: HttpRequest, name: str, revision: int) -> None:
    reschedule_as_seen(
        name,
        decision_id=request.POST.get("decision", ""),
        by=user_of(request),
        now=datetime.now(UTC),
        expected=revision,
        confirmed=is_confirmed(request),
    )


def _page(
    request: HttpRequest,
    placement: Placement,
    *,
    status: int = 200,
    outdated: str = "",
    since: list[Event] | None = None,
    empties: EmptiesPlacementError | None = None,
) -> HttpResponse:
    context = {
        "placement": placement,
        "refusal": reschedule_refusal(placement),
        "outdated": outdated,
        "events": happening_rows(since or ()),
        "empties": empties,
        "shown": None,
        "afresh": "",
        "faults": (),
        "moved": [],
        "back": _back(request),
        **_preview(request, placement),
    }
    return render(request, "placements/reschedule.html", context, status=status)


def _preview(request: HttpRequest, placement: Placement) -> dict[str, Any]:
    if reschedule_refusal(placement):
        return {}
    try:
        shown = look_afresh(placement, now=datetime.now(UTC))
    except Faults as found:
        return {"faults": found.faults}
    preview = shown.preview
    return {
        **decided(shown, parse_placement(placement.document)),
        "decision": preview.decision,
        "afresh": afresh_words(preview.decision.cycle),
        "after": names_after(shown),
        "moved": moved_since(request, shown),
        "moves": bool(preview.joins or preview.leaves),
        "placed": {one.cluster for one in preview.decision.bindings_after if one.is_active},
        "is_saved": True,
    }
