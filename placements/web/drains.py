"""Drains of a cluster, and the removals from one that wait for a person."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import by_operation, for_operators, for_readers
from placements.explain.loss import IMPACT_BADGES
from placements.manifests.policy import PlacementType
from placements.models import Binding, Drain, DrainStep, Placement
from placements.services.actions import ACTIONS, ActionKind
from placements.services.disruption.drains import (
    AT_ONCE,
    MOST_AT_ONCE,
    Pace,
    why_not_drain,
)
from placements.services.disruption.preview import drain_impact
from placements.services.disruption.queries import (
    latest_drain,
    step_sentence,
    taken_over,
)
from placements.services.disruption.restore import bring_back
from placements.services.rollouts.removals import (
    confirm_removal,
    keep_objects,
    waiting_removals,
)
from placements.web.badges import Badge, phase_state
from placements.web.layout import live_page
from placements.web.request import (
    actor,
    for_action,
    next_address,
    number_of,
    redirect_after,
)

_NAMES_SHOWN = 3
_LONGEST_MINUTES = 100_000
_STEPS = {
    DrainStep.State.WAITING: Badge("pending", "Pending"),
    DrainStep.State.BLOCKED: Badge("attention", "Blocked"),
    DrainStep.State.LEAVING: Badge("progress", "Evicting"),
    DrainStep.State.NEXT_RUN: Badge("pending", "Next run"),
    DrainStep.State.GONE: Badge("healthy", "Evicted"),
    DrainStep.State.STAYS: Badge("pending", "Not evictable"),
}
_DRAINS = {
    Drain.State.RUNNING: Badge("progress", "In progress"),
    Drain.State.DONE: Badge("healthy", "Drained"),
    Drain.State.CANCELLED: Badge("suspended", "Canceled"),
    Drain.State.EXPIRED: Badge("attention", "Deadline exceeded"),
}


@dataclass(frozen=True, slots=True)
class DrainStepRow:
    """The progress of a drain with one placement, and its replacement clusters."""

    placement: str
    state: Badge
    message: str
    since: datetime
    went: list[tuple[str, Badge]]
    more: int
    is_evictable: bool
    has_all: bool
    """Whether the placement selects every cluster, so that none replaces this one."""


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
@live_page
def drain_cluster(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the impact or the progress of a drain; start, change or cancel it."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method == "POST":
        return _change(request, cluster)
    return _page(request, cluster)


@for_action(ActionKind.CLUSTER, "drain")
def _change(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    """Start, change or cancel a drain, or cordon only; restoring a placement has its own page."""
    if request.POST.get("do") == "bring-back":
        placement = get_object_or_404(
            Placement, full_name=request.POST.get("placement", "")
        )
        return redirect(
            reverse(
                "web:placement-reschedule",
                args=[placement.name],
                query={"back": cluster.name},
            )
        )
    try:
        what = request.POST.get("do", "")
        if what == "start":
            done = _start(request, cluster)
        elif what == "cancel":
            done = ACTIONS[ActionKind.CLUSTER, "cancel-drain"].run(
                cluster.name, **actor(request)
            )
        else:
            raise InvalidManifest.of(
                "do", "not-one-of", f"Unsupported value: {what!r}", "start, cancel"
            )
    except InvalidManifest as error:
        return _page(request, cluster, errors=error.errors, status=422)
    page = reverse("web:cluster-drain", args=[cluster.name])
    back = next_address(request, page)
    if back != page and request.POST.get("how") != "cordon":
        done = format_html('{} <a href="{}">Progress and result</a>', done, page)
    # The page of a drain says itself how far it is: one without evictions has ended by then.
    if back != page or what == "cancel" or request.POST.get("how") == "cordon":
        messages.success(request, done)
    return redirect(back)


def _start(request: HttpRequest, cluster: MemberCluster) -> str:
    how = actor(request)
    if request.POST.get("how") == "cordon":
        return ACTIONS[ActionKind.CLUSTER, "cordon"].run(cluster.name, **how)
    errors: list[FieldError] = []
    at_once = _number(request, "at_once", MOST_AT_ONCE, errors)
    minutes = _number(request, "minutes", _LONGEST_MINUTES, errors)
    if errors:
        raise InvalidManifest(errors)
    first = tuple(request.POST.get("first", "").replace(",", " ").split())
    deadline = how["now"] + timedelta(minutes=minutes) if minutes else None
    impact = drain_impact(cluster.name, now=how["now"])
    if impact.needs_typed_name and request.POST.get("name", "").strip() != cluster.name:
        raise InvalidManifest.of(
            "name",
            "required",
            "Required value: some placements lose a cluster without a replacement",
            cluster.name,
        )
    return ACTIONS[ActionKind.CLUSTER, "drain"].run(
        cluster.name, **how, pace=Pace(at_once, None, first or None, deadline)
    )


def _number(
    request: HttpRequest,
    field: str,
    most: int,
    errors: list[FieldError],
) -> int | None:
    text = request.POST.get(field, "").strip()
    if not text:
        return None
    number = number_of(text)
    if number and number <= most:
        return number
    errors.append(
        FieldError(
            field, "out-of-range", f"Invalid value: {text[:20]!r}", f"1 to {most}"
        )
    )
    return None


def _page(
    request: HttpRequest,
    cluster: MemberCluster,
    *,
    errors: tuple[FieldError, ...] = (),
    status: int = 200,
) -> HttpResponse:
    last = latest_drain(cluster.name)
    is_running = last is not None and last.state == Drain.State.RUNNING
    progress = _progress(last) if last else {"is_changing": False}
    # A drain that has ended shows its result; the plan of another one is requested.
    wants_plan = "plan" in request.GET or request.method == "POST"
    shows_result = is_running or (last is not None and not wants_plan)
    impact = None
    if not shows_result and not why_not_drain(cluster):
        impact = drain_impact(cluster.name, now=datetime.now(UTC))
    defaults = {
        "how": "drain",
        "at_once": str(AT_ONCE),
        "minutes": "",
        "first": "",
        "name": "",
    }
    counts = impact.counts if impact else {}
    context = {
        "cluster": cluster,
        "cancel": next_address(request, reverse("web:cluster", args=[cluster.name])),
        "drain": last,
        "is_running": is_running,
        "is_cordoned": cluster.is_cordoned,
        "progress": progress,
        "is_followed": is_running or progress["is_changing"],
        "shows_result": shows_result,
        "back": bring_back(cluster.name) if shows_result and not is_running else None,
        "impact": impact,
        "impact_totals": [
            (*IMPACT_BADGES[placement_impact], count)
            for placement_impact, count in counts.items()
        ],
        "fields": {
            field: request.POST.get(field, default)
            for field, default in defaults.items()
        },
        "most_at_once": MOST_AT_ONCE,
        "errors": errors,
    }
    return render_page(
        request,
        "drains/drain.html",
        context,
        fragment="drains/_progress.html" if last and request.method != "POST" else None,
        status=status,
    )


def _progress(row: Drain) -> dict[str, Any]:
    went = taken_over(row)
    in_order = sorted(
        row.steps.select_related("drain").order_by("placement_name"),
        key=lambda step: _ORDER.index(DrainStep.State(step.state)),
    )
    have_all = set(
        Placement.objects.filter(
            full_name__in=[step.placement_name for step in in_order],
            placement_type=PlacementType.PICK_ALL,
        ).values_list("full_name", flat=True)
    )
    steps = [
        _step(
            step,
            went.get(step.placement_name, []),
            has_all=step.placement_name in have_all,
        )
        for step in in_order
    ]
    counts = [
        (state, sum(drain_step.state is state for drain_step in steps))
        for state in _STEPS.values()
    ]
    return {
        "state": _DRAINS[Drain.State(row.state)],
        "steps": steps,
        "counts": [(state, count) for state, count in counts if count],
        "done": sum(
            drain_step.state is _STEPS[DrainStep.State.GONE] for drain_step in steps
        ),
        "is_changing": any(
            phase.kind == "progress"
            for drain_step in steps
            for _, phase in drain_step.went
        ),
    }


_ORDER = (
    DrainStep.State.BLOCKED,
    DrainStep.State.LEAVING,
    DrainStep.State.WAITING,
    DrainStep.State.NEXT_RUN,
    DrainStep.State.STAYS,
    DrainStep.State.GONE,
)


def _step(step: DrainStep, went: list[Binding], *, has_all: bool) -> DrainStepRow:
    clusters = [
        (binding.cluster_name, phase_state(binding.phase))
        for binding in went[:_NAMES_SHOWN]
    ]
    message = "" if step.state == DrainStep.State.GONE else step_sentence(step)
    return DrainStepRow(
        step.placement_name,
        _STEPS[DrainStep.State(step.state)],
        message,
        step.changed_at,
        clusters,
        max(0, len(went) - _NAMES_SHOWN),
        is_evictable=step.state != DrainStep.State.STAYS,
        has_all=has_all,
    )


@for_readers
@require_http_methods(["GET", "HEAD", "POST"])
def cluster_removals(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the removals that wait; confirm one, or keep the objects."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method == "POST":
        return _decide(request, cluster)
    return render(
        request,
        "clusters/removals.html",
        {"cluster": cluster, "removals": waiting_removals(cluster.name)},
    )


@for_operators("decide removals", of=by_operation)
def _decide(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    placement = request.POST.get("placement", "")
    if request.POST.get("do") == "keep":
        keep_objects(cluster.name, placement, **actor(request))
        done = f"The objects of {placement} stay on {cluster.name}."
    else:
        confirm_removal(cluster.name, placement, **actor(request))
        done = f"Removal of {placement} from {cluster.name} confirmed."
    return redirect_after(request, done, "web:cluster-removals", cluster.name)
