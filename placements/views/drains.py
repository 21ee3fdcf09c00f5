"""Draining a cluster: what it would do, how it is to go, how far it is, and what could come back."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from clusters.listing import cordoned_among
from clusters.models import MemberCluster, Membership
from clusters.operations.editing import cordon
from fleetui.access import for_operators, for_readers
from fleetui.htmx import render_page, wants_fragment
from fleetui.unchanged import unchanged_since
from placements.models import Binding, Drain, DrainStep, Placement
from placements.operations.rollouts.draining import AT_ONCE, MOST_AT_ONCE, Pace, cancel_drain, drain
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.disruptions import latest_drain, step_sentence, taken_over
from placements.queries.drain_impact import DrainImpact, Fate, drain_impact
from placements.queries.fresh import bring_back
from placements.scheduling.faults import Fault, Faults
from placements.views.people import user_of
from placements.views.states import State, phase_state

_NAMES_SHOWN = 3
_LONGEST_MINUTES = 100_000
_FATES = {
    Fate.STUCK: State("blocked", "stuck"),
    Fate.BLOCKED: State("blocked", "held back"),
    Fate.STAYS: State("neutral", "cannot be evicted"),
    Fate.SHRINKS: State("attention", "shrinks"),
    Fate.MOVES: State("ok", "replacement found"),
    Fate.LEAVING: State("progress", "leaves already"),
}
_STEPS = {
    DrainStep.State.WAITING: State("neutral", "waits"),
    DrainStep.State.BLOCKED: State("blocked", "held back"),
    DrainStep.State.LEAVING: State("progress", "leaves"),
    DrainStep.State.NEXT_RUN: State("neutral", "next run"),
    DrainStep.State.GONE: State("ok", "gone"),
    DrainStep.State.STAYS: State("neutral", "stays"),
}
_DRAINS = {
    Drain.State.RUNNING: State("progress", "being drained"),
    Drain.State.DONE: State("ok", "drained"),
    Drain.State.CANCELLED: State("blocked", "cancelled"),
    Drain.State.EXPIRED: State("attention", "ended at its deadline"),
}


@dataclass(frozen=True, slots=True)
class StepRow:
    """How far a drain is with one placement, and where it went instead."""

    placement: str
    state: State
    said: str
    since: datetime
    went: list[tuple[str, State]]
    more: int


@for_readers
@require_http_methods(["GET", "HEAD", "POST"])
def drain_cluster(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show what a drain would do, or how far it is; take what an operator wants of it."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method == "POST":
        return _change(request, cluster)
    if wants_fragment(request) and (
        same := unchanged_since(request, _version(name), partial(_version, name))
    ):
        return same
    return _page(request, cluster)


def _version(cluster: str) -> str:
    """Give what moves whenever the progress of the last drain looks different; empty without one."""
    last = latest_drain(cluster)
    return str(_progress(last)["version"]) if last else ""


@for_operators("drain clusters")
def _change(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    """Begin, pace or cancel a drain, or cordon only; what is to come back is asked on a page of its own."""
    if request.POST.get("do") == "bring-back":
        found = get_object_or_404(Placement, name=request.POST.get("placement", ""))
        return redirect(
            f"{reverse('pages:reschedule', args=[found.name])}?{urlencode({'back': cluster.name})}"
        )
    try:
        done = _wish(request.POST.get("do", ""))(request, cluster)
    except Faults as found:
        return _page(request, cluster, faults=found.faults, status=422)
    except HandRefusedError as refused:
        return _page(request, cluster, refused=str(refused), status=409)
    messages.success(request, done)
    return redirect("pages:drain-cluster", cluster.name)


def _begin(request: HttpRequest, cluster: MemberCluster) -> str:
    by, now = user_of(request), datetime.now(UTC)
    if request.POST.get("how") == "cordon":
        cordon([cluster.name], by=by, now=now)
        return f"{cluster.name} is cordoned; what is placed there stays."
    pace = _pace(request, now=now)
    impact = drain_impact(cluster.name, now=now)
    if impact.asks_for_the_name and request.POST.get("name", "").strip() != cluster.name:
        message = "something would be stuck or shrink, and the name of the cluster is not typed"
        raise Faults([Fault("name", "required", message, cluster.name)])
    drain(cluster.name, by=by, now=now, pace=pace)
    return f"{cluster.name} is being drained."


def _cancel(request: HttpRequest, cluster: MemberCluster) -> str:
    cancel_drain(cluster.name, by=user_of(request), now=datetime.now(UTC))
    return f"The drain of {cluster.name} is cancelled; it stays cordoned."


_WISHES = {"begin": _begin, "cancel": _cancel}


def _wish(what: str) -> Callable[[HttpRequest, MemberCluster], str]:
    if what not in _WISHES:
        raise Faults(
            [Fault("do", "not-one-of", f"{what!r} is nothing that can be done here", "begin or cancel")]
        )
    return _WISHES[what]


def _pace(request: HttpRequest, *, now: datetime) -> Pace:
    """Read how the drain is to go. Raises Faults."""
    faults: list[Fault] = []
    at_once = _number(request, "at_once", MOST_AT_ONCE, faults)
    minutes = _number(request, "minutes", _LONGEST_MINUTES, faults)
    if faults:
        raise Faults(faults)
    first = tuple(request.POST.get("first", "").replace(",", " ").split())
    deadline = now + timedelta(minutes=minutes) if minutes else None
    return Pace(at_once, None, first or None, deadline)


def _number(request: HttpRequest, field: str, most: int, faults: list[Fault]) -> int | None:
    given = request.POST.get(field, "").strip()
    if not given:
        return None
    if given.isdecimal() and len(given) < 9 and 1 <= int(given) <= most:
        return int(given)
    faults.append(Fault(field, "out-of-range", f"{given[:20]!r} is out of range", f"1 to {most}"))
    return None


def _page(
    request: HttpRequest,
    cluster: MemberCluster,
    *,
    faults: tuple[Fault, ...] = (),
    refused: str = "",
    status: int = 200,
) -> HttpResponse:
    last = latest_drain(cluster.name)
    is_running = last is not None and last.state == Drain.State.RUNNING
    is_cordoned = bool(cordoned_among([cluster]))
    may_begin = not is_running and cluster.membership != Membership.LEAVING
    context = {
        "cluster": cluster,
        "drain": last,
        "is_running": is_running,
        "is_cordoned": is_cordoned,
        "progress": _progress(last) if last else None,
        "back": bring_back(cluster.name) if last and not is_running else None,
        "may_begin": may_begin,
        "impact": _impact(drain_impact(cluster.name, now=datetime.now(UTC))) if may_begin else None,
        "given": _given(request),
        "most_at_once": MOST_AT_ONCE,
        "faults": faults,
        "refused": refused,
    }
    fragment = "drains/_progress.html" if last and request.method != "POST" else None
    return render_page(request, "drains/drain.html", context, fragment=fragment, status=status)


def _given(request: HttpRequest) -> dict[str, str]:
    defaults = {"how": "drain", "at_once": str(AT_ONCE), "minutes": "", "first": "", "name": ""}
    return {field: request.POST.get(field, default) for field, default in defaults.items()}


def _impact(impact: DrainImpact) -> dict[str, Any]:
    counts = impact.count
    return {
        "rows": [(row, _FATES[row.fate]) for row in impact.rows],
        "totals": [(state, counts[fate]) for fate, state in _FATES.items() if counts[fate]],
        "unlooked": impact.unlooked,
        "asks_for_the_name": impact.asks_for_the_name,
    }


def _progress(row: Drain) -> dict[str, Any]:
    """Give how far a drain is, with what moves whenever that looks different."""
    went = taken_over(row)
    steps = [_step(step, went.get(step.placement_name, [])) for step in _in_order(row)]
    counts = [(state, sum(one.state is state for one in steps)) for state in _STEPS.values()]
    looks = repr((row.state, row.deadline, row.at_once, steps))
    return {
        "state": _DRAINS[Drain.State(row.state)],
        "steps": steps,
        "counts": [(state, count) for state, count in counts if count],
        "done": sum(one.state is _STEPS[DrainStep.State.GONE] for one in steps),
        "version": hashlib.sha256(looks.encode()).hexdigest()[:12],
    }


def _in_order(row: Drain) -> list[DrainStep]:
    """Give the steps, those that wait for something first."""
    order = {state: place for place, state in enumerate(_ORDER)}
    steps = list(row.steps.select_related("drain").order_by("placement_name"))
    return sorted(steps, key=lambda step: order[DrainStep.State(step.state)])


_ORDER = (
    DrainStep.State.BLOCKED,
    DrainStep.State.LEAVING,
    DrainStep.State.WAITING,
    DrainStep.State.NEXT_RUN,
    DrainStep.State.STAYS,
    DrainStep.State.GONE,
)


def _step(step: DrainStep, went: list[Binding]) -> StepRow:
    shown = [(one.cluster_name, phase_state(one.phase)) for one in went[:_NAMES_SHOWN]]
    more = max(0, len(went) - _NAMES_SHOWN)
    state = _STEPS[DrainStep.State(step.state)]
    return StepRow(step.placement_name, state, step_sentence(step), step.changed_at, shown, more)
