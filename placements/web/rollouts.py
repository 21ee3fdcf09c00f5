"""Rollouts and staged runs: the list and the pending approvals, one rollout, the plan, actions of users."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import counted
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page, wants_fragment
from fleetui.middleware import costly
from fleetui.pagination import Page
from fleetui.permissions import current_user, for_readers
from fleetui.polling import TOKEN, polled, shared_fragment
from placements.engine.rollout.actions import BlockReason, RollingUpdateResult, RunPhase
from placements.explain.charts.figure import duration_text, seconds_between
from placements.explain.charts.rollouts import picture_figure
from placements.explain.rollouts import (
    NO_FORECAST,
    UP_TO_DATE,
    action_words,
    blocked_groups,
    blocked_removals_sentence,
    eta_sentence,
    phase_sentence,
    with_names,
)
from placements.explain.run_pages import (
    LEVELS,
    RunCount,
    rolling_effects,
    state_counts,
    verdict_words,
    wait_rows,
)
from placements.explain.run_pictures import Dot, RunPicture, run_picture, wave_columns
from placements.explain.vocabulary import NONE
from placements.manifests.placement import parse_placement
from placements.models import Placement, Rollout, StagedRun
from placements.services.actions import ACTIONS, Action, ActionKind, Reasons
from placements.services.editor.queries import plan_now, plan_of_revision
from placements.services.health import health_of
from placements.services.history.compare import changes_by_unpinning
from placements.services.resources.queries import selection_of
from placements.services.rollouts.approvals import approvals_waiting, waiting_for
from placements.services.rollouts.lists import (
    RunKind,
    RunListState,
    RunsPage,
    active_runs,
    latest_runs,
    newest_run,
    runs_count,
    runs_page,
)
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.rollouts.queries import (
    ClusterInRun,
    Part,
    RolloutReport,
    clusters_in,
    events_of,
    latest_run,
    parts_of,
    report_of,
    run_named,
)
from placements.services.rollouts.staged_operations import LONGEST_COMMENT
from placements.services.run_history import RunHistory, history_of
from placements.templatetags.fleet import state_words
from placements.web import badges
from placements.web.activity import event_rows
from placements.web.filter_bar import Facet, filter_bar, read_typed
from placements.web.layout import operates_here
from placements.web.request import (
    for_action,
    number_of,
    page_from,
    page_size,
    pager_of,
    start_of,
    word_from,
)

_ROWS, _CLUSTERS_SHOWN, _EVENTS_SHOWN, _MESSAGES = 50, 20, 50, 20
TABS = ("clusters", "events", "plan")
"""Tabs of a rollout with an address of their own; its page shows its clusters."""
_APPROVAL = "approval"
_FILTERS = ("placement", "kind", "state", "waiting")


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list of rollouts and staged runs."""

    url: str
    title: str
    is_staged: bool
    state: badges.Badge
    resources: str
    ready: str
    began_at: datetime
    ended_at: datetime | None
    trigger: str
    ended_reason: str
    eta: str = ""
    share: tuple[int, int] | None = None
    """How many of how many clusters are available, for a bar."""


@for_readers
@require_safe
def rollouts(request: HttpRequest) -> HttpResponse:
    """List rollouts and staged runs, those in progress first, or the pending approvals."""
    text, name = read_typed(request, _FILTERS), request.GET.get("placement", "").strip()
    pending = approvals_waiting().filter(run__placement_name__contains=text.lower())
    pending = pending.filter(run__placement_name=name) if name else pending
    is_inbox = request.GET.get("waiting") == _APPROVAL
    state, after = (
        word_from(request, "state", RunListState),
        request.GET.get("after", ""),
    )
    kind = word_from(request, "kind", RunKind)
    rows: list[Any]
    page: Page[Any] | RunsPage
    if is_inbox:
        page = page_from(request, pending, order="requested_at", unique="id")
        rows, count = (
            [waiting_for(one, current_user(request)) for one in page.rows],
            pending.count(),
        )
    else:
        active = []
        if not state:
            active = active_runs(placement=name, text=text, most=_ROWS, kind=kind)
        start, size = start_of(request) - len(active), page_size(request.GET)
        page = runs_page(
            placement=name,
            text=text,
            state=state,
            after=after,
            size=size,
            start=start,
            kind=kind,
        )
        rows = [_row(run) for run in [*([] if after else active), *page.rows]]
        ended = runs_count(placement=name, text=text, state=state, kind=kind)
        count = len(active) + ended
    states = [(one, state_words(one), None) for one in RunListState]
    kinds = [(one, one.capitalize(), None) for one in RunKind]
    waiting = [(_APPROVAL, "Pending approval", pending.count())]
    facets = [
        Facet("state", "Status", states, is_row=True, without=("waiting",)),
        Facet("kind", "Type", kinds, is_row=True, without=("waiting",)),
        Facet(
            "waiting",
            "Waiting for",
            waiting,
            is_row=True,
            without=("state", "kind"),
        ),
    ]
    context = {
        "bar": filter_bar(
            request,
            _FILTERS,
            facets,
            kind=RunKind,
            state=RunListState,
            waiting=(_APPROVAL,),
        ),
        "is_inbox": is_inbox,
        "rows": rows,
        "pager": pager_of(
            request, len(rows), count, before=page.before, after=page.after
        ),
    }
    return render_page(
        request, "rollouts/list.html", context, fragment="rollouts/_list.html"
    )


def run_rows(placement: str, *, most: int) -> list[RunRow]:
    """Return the rollouts and staged update runs of a placement, those in progress first."""
    runs = latest_runs(placement=placement, most=most)
    return [_row(run) for run in sorted(runs, key=lambda run: run.ended_at is not None)]


def _row(run: Any) -> RunRow:
    resources = NONE if run.resource_number is None else f"r{run.resource_number}"
    if isinstance(run, StagedRun):
        annotated: Any = run
        is_running = run.ended_at is None and annotated.of is not None
        return RunRow(
            reverse("web:staged-run", args=[run.full_name]),
            f"{run.placement_name} · {run.full_name}",
            True,
            badges.staged_state(run),
            resources,
            f"{annotated.done} of {annotated.of} in {annotated.stage}"
            if is_running
            else "",
            run.started_at or run.created_at,
            run.ended_at,
            f"{run.started_by or run.created_by}: strategy {annotated.strategy_name}",
            "",
        )
    is_running = run.state == Rollout.State.RUNNING and run.ready is not None
    return RunRow(
        reverse("web:rollout", args=[run.placement_name, run.number]),
        f"{run.placement_name}/{run.number}",
        False,
        badges.run_state(run),
        "Deletion" if run.is_deletion else resources,
        f"{int(run.ready):,} of {int(run.of):,}" if is_running else "",
        run.started_at,
        run.ended_at,
        f"{run.started_by}: {run.trigger}",
        "" if run.ended_reason == UP_TO_DATE else run.ended_reason,
        eta_sentence(run.eta, now=datetime.now(UTC)) if is_running else "",
        (int(run.ready), int(run.of)) if is_running and run.of else None,
    )


@for_readers
@require_safe
def newest(_request: HttpRequest, name: str) -> HttpResponse:
    """Redirect to the latest rollout or staged run of a placement."""
    run = newest_run(name)
    if run is None and Placement.objects.filter(full_name=name).exists():
        raise Http404(f"The placement {name} has no rollout yet.")
    if run is None:
        raise Http404(
            f"No placement is named {name}, and no rollout of such a placement is kept."
        )
    if isinstance(run, Rollout):
        return redirect("web:rollout", name, run.number)
    return redirect("web:staged-run", run.full_name)


@for_readers
@require_safe
@polled
def rollout(
    request: HttpRequest, name: str, number: int, tab: str = "clusters"
) -> HttpResponse:
    """Show one tab of a rollout; while it is in progress the page polls its fragment."""
    if wants_fragment(request) and "table" not in request.GET:
        # The same role and query get the same fragment; `v` differs by how new the page is.
        query = sorted((key, value) for key, value in request.GET.items() if key != "v")
        key = (request.path, operates_here(request), str(query))
        make = partial(_rollout, request, name, number, tab)
        return shared_fragment(request, key, make)
    return _rollout(request, name, number, tab)


def _rollout(request: HttpRequest, name: str, number: int, tab: str) -> HttpResponse:
    run, now = run_named(name, number), datetime.now(UTC)
    is_running = run.state == Rollout.State.RUNNING
    placement = run.placement
    report = report_of(run)
    result = report.result
    rollouts = Rollout.objects.filter(placement=placement).order_by("-number")
    latest = rollouts.only("number").first() if placement else None
    has_plan = latest is not None and latest.pk == run.pk and not run.is_mirrored
    late = {
        one.cluster: Part.NOT_AVAILABLE
        for one in (result.blocked if result else ())
        if one.reason is BlockReason.NOT_AVAILABLE
    }
    parts = {**parts_of(run), **late}
    state = badges.run_state(run)
    # The plan lists the waves that are left.
    picture = None
    if tab != "plan":
        picture = _picture(run, parts, history_of(run), result, state, now=now)
    if picture and request.GET.get("figure") == "picture":
        figure = picture_figure(picture).to_json(validate=True, engine="json")
        return HttpResponse(figure, content_type="application/json")
    health = (
        health_of(placement, now=now)
        if placement and latest and not is_running
        else None
    )
    why_not = Reasons(ActionKind.ROLLING, placement, stop=run)
    is_paused = placement is not None and placement.paused_since is not None
    context = {
        "tab": tab,
        "run": run,
        "placement": placement,
        "state": state,
        "is_running": is_running,
        "why_not": why_not,
        "eta": (
            eta_sentence(run.eta, now=now)
            or NO_FORECAST.get(run.eta.get("reason", ""), "")
        )
        if is_running
        else "",
        "is_at_rest": result is not None and result.phase is RunPhase.HALTED,
        "now": now,
        "has_plan": has_plan,
        "latest": latest,
        "verdict": verdict_words(parts.values(), _waits_words(parts, result)),
        "counts": state_counts(parts.values()),
        "picture": picture,
        "figure_url": f"{request.path}?figure=picture",
        "health": health,
        "health_state": badges.placement_state(health) if health else None,
        "clusters_count": len(parts),
        "failed_count": sum(one is Part.FAILED for one in parts.values()),
    }
    if result:
        context |= _waiting_context(run, result, report)
    if is_running and has_plan and placement:
        context["effects"] = rolling_effects(
            parts.values(),
            name=placement.full_name,
            revision=f"r{run.resource_number}",
            is_paused=is_paused,
            can_roll_back=not why_not["roll_back"],
        )
    if tab == "clusters":
        context |= _clusters_context(request, run, parts, report)
    elif tab == "events":
        context["events"] = event_rows(
            events_of(run).order_by("-at", "-id")[:_EVENTS_SHOWN]
        )
    elif tab == "plan":
        if not (has_plan and placement):
            raise Http404(
                f"Rollout {name}/{number} has no plan. The latest rollout of a placement has one."
            )
        context |= _plan_context(placement)
    if wants_fragment(request):
        context["csrf_token"] = TOKEN
    return render_page(
        request, "rollouts/rollout.html", context, fragment="rollouts/_live.html"
    )


def _waits_words(parts: Mapping[str, Part], result: RollingUpdateResult | None) -> str:
    """Return what a rollout waits for, for its verdict; empty where nothing is left."""
    if result is None:
        return ""
    if any(
        one.reason in (BlockReason.PAUSED, BlockReason.STOPPED)
        for one in result.blocked
    ):
        return "no new updates start"
    updating = sum(one is Part.UPDATING for one in parts.values())
    return f"waits for {counted(updating, 'cluster')}" if updating else ""


def _picture(
    run: Rollout,
    parts: Mapping[str, Part],
    history: RunHistory,
    result: RollingUpdateResult | None,
    state: badges.Badge,
    *,
    now: datetime,
) -> RunPicture:
    """Return the waves that started and those that are planned, with the line of available clusters."""
    is_running = run.state == Rollout.State.RUNNING
    until = seconds_between(run.started_at, run.ended_at or now)
    starts = history.starts
    took = {one.cluster: (one.ended or until) - one.at for one in starts}
    dots = {
        name: Dot(
            name,
            LEVELS[part],
            str(part),
            duration_text(took[name]) if name in took else "",
        )
        for name, part in parts.items()
    }
    others = [name for name in parts if name not in took]
    before = [name for name in others if parts[name] in _DONE]
    planned = {name for wave in run.waves for name in wave}
    left = [name for name in others if name not in planned]
    pending = [
        [name for name in wave if parts.get(name) not in (None, *_DONE)]
        for wave in [[one for one in wave if one not in took] for wave in run.waves]
        + [left]
    ]
    rest = None
    if result and result.phase is RunPhase.HALTED:
        rest = (state.words.partition(" ")[0], phase_sentence(result))
    columns = wave_columns(
        starts, pending, before, dots, until=until, is_running=is_running, rest=rest
    )
    return run_picture(
        columns,
        history.moments,
        until=until,
        is_running=is_running,
        has_maximum=history.adds,
        unit="wave",
    )


def _clusters_context(
    request: HttpRequest, run: Rollout, parts: dict[str, Part], report: RolloutReport
) -> dict[str, Any]:
    is_running, result = run.state == Rollout.State.RUNNING, report.result
    planned = [name for wave in run.waves for name in wave]
    names = (
        list(dict.fromkeys([*planned, *sorted(parts)])) if is_running else list(parts)
    )
    blocked = (
        {one.cluster for one in result.blocked} if result and is_running else set[str]()
    )
    names.sort(
        key=lambda one: _ORDER[None if one in blocked else parts.get(one, Part.PENDING)]
    )
    first = number_of(request.GET.get("from", "")) or 0
    first = first if first < len(names) else 0
    rows = clusters_in(run, names[first : first + _CLUSTERS_SHOWN], report)
    last = first + len(rows)
    return {
        "clusters": [
            (row, part_state(row, parts.get(row.cluster, Part.PENDING))) for row in rows
        ],
        "first": first + 1,
        "last": last,
        "total": len(names),
        "earlier": max(0, first - _CLUSTERS_SHOWN) if first else None,
        "later": last if last < len(names) else None,
    }


def part_state(row: ClusterInRun, part: Part) -> badges.Badge:
    """Return the status of a cluster in the words of the counts, with its phase where that says more."""
    detail = badges.phase_state(row.phase, row.block)
    if part in (Part.UPDATING, Part.REMOVED) or detail.words == "Unreachable":
        return detail
    return badges.Badge(LEVELS[part], part.capitalize())


_DONE = (Part.UPDATED, Part.REMOVED)
_ORDER: dict[Part | None, int] = {
    Part.FAILED: 0,
    None: 1,
    Part.NOT_AVAILABLE: 1,
    Part.UPDATING: 2,
    Part.PENDING: 3,
    Part.UPDATED: 4,
    Part.REMOVED: 4,
}
"""The order of the table of clusters; None is a blocked one."""


def _waiting_context(
    run: Rollout, result: RollingUpdateResult, report: RolloutReport
) -> dict[str, Any]:
    """Return why more does not happen now: the limits, blocked clusters, clusters in progress."""
    named = [one.cluster for one in result.in_progress[:_MESSAGES]]
    named += [one.clusters[0] for one in blocked_groups(result)]
    rows = clusters_in(run, named, report) if named else []
    budgets, removals = result.budgets, result.blocked_removals
    updates = budgets.updates
    limits = []
    if not budgets.deletion and updates.ready and not run.is_initial:
        available = max(0, updates.ready - updates.at_risk)
        away = max(0, updates.number - available)
        limits = [
            RunCount(f"{available:,}", f"available, minimum {updates.minimum:,}"),
            RunCount(f"{away:,} of {updates.limit:,}", "unavailable (most allowed)"),
        ]
    return {
        "waits": wait_rows(result, {row.cluster: row.message for row in rows}),
        "waits_first": blocked_removals_sentence(removals) if removals else "",
        "limits": limits,
    }


rollout_plan = for_readers(costly(rollout))


@for_readers
@costly
@require_safe
def plan(request: HttpRequest, name: str) -> HttpResponse:
    """Redirect to the plan of the latest rollout; show it here where there is none."""
    placement = get_object_or_404(Placement, full_name=name)
    latest = None if placement.is_staged else latest_run(placement)
    if latest and not latest.is_mirrored:
        return redirect("web:rollout-plan", name, latest.number)
    return render_page(request, "rollouts/plan.html", _plan_context(placement))


def _plan_context(placement: Placement) -> dict[str, Any]:
    """Return the waves that a placement needs from the current state of its clusters."""
    now = datetime.now(UTC)
    planned, names, running = plan_now(placement, now=now)
    waves = []
    for wave in planned.waves[:_ROWS]:
        rows: dict[str, list[str]] = {}
        for one in wave.actions:
            rows.setdefault(
                action_words(one, running.get(one.cluster), names), []
            ).append(one.cluster)
        waves += [
            (wave.number if at == 0 else None, words, clusters[:_ROWS], len(clusters))
            for at, (words, clusters) in enumerate(rows.items())
        ]
    return {
        "placement": placement,
        # Read only where nothing is left to do.
        "plan_health": SimpleLazyObject(lambda: health_of(placement, now=now)),
        "planned_waves": waves,
        "more": max(0, len(planned.waves) - _ROWS),
        "total": len(planned.waves),
        "blocked_rows": wait_rows(with_names(planned.rest, names), {}),
        "blocked": len(planned.rest.blocked),
        "in_progress": len(planned.in_progress),
    }


@require_http_methods(["GET", "HEAD", "POST"])
def run_action(
    request: HttpRequest, name: str, kind: ActionKind, action: str, value: str = ""
) -> HttpResponseBase:
    """Show the confirmation, or run an action; a refusal is shown on the same page."""
    check = for_action(kind, action)
    return check(_run_action)(
        request, action=ACTIONS[kind, action], name=name, value=value
    )


def _unpin_context(placement: Placement) -> dict[str, Any]:
    """Return what unpinning would do: the clusters, the waves, the changes of resources."""
    context = {
        "plan": plan_of_revision(placement, now=datetime.now(UTC)),
        "selected": placement.placed_count,
    }
    try:
        selected = selection_of(parse_placement(placement.document)).objects
    except InvalidManifest:  # a selector that the hub cannot resolve now
        return context
    changes = (
        changes_by_unpinning(placement, selected)
        if placement.pinned_snapshot is not None
        else []
    )
    return {**context, "diffs": [("Changes by unpinning", changes)]}


def _run_action(
    request: HttpRequest, action: Action, name: str, value: str
) -> HttpResponse:
    words = {"name": name, "value": value}
    is_on_cluster = (
        action.name == "reapply"
    )  # confirmed on, and back to, the page of one cluster
    context: dict[str, Any] = {
        "title": action.title.format(**words),
        "confirmation": action.confirmation.format(**words),
        "is_dangerous": action.is_dangerous,
    }
    subject: Placement | StagedRun
    if action.kind is ActionKind.STAGED:
        subject = get_object_or_404(
            StagedRun.objects.select_related("placement"), full_name=name
        )
        back = reverse("web:staged-run", args=[name])
        crumbs = {"parent": "Rollouts", "parent_url": reverse("web:rollouts")}
        if action.name == "approve":
            context["longest_comment"] = LONGEST_COMMENT
            context["more"] = {"comment": request.POST.get("comment", "").strip()}
    else:
        placement = subject = get_object_or_404(Placement, full_name=name)
        page, at = (
            ("placement-cluster", [name, value])
            if is_on_cluster
            else ("placement", [name])
        )
        back = reverse(f"web:{page}", args=at)
        crumbs = {"parent": "Placements", "parent_url": reverse("web:placements")}
        if action.name == "unpin":
            context |= _unpin_context(placement)
    context |= {**crumbs, "here": name, "back": back}
    if request.method != "POST":
        why_not = action.why_not(
            subject, current_user(request), *([value] if value else [])
        )
        context["refusal"] = _sentence(why_not, name)
        return render(request, "rollouts/action.html", context)
    try:
        more = context.get("more", {})
        message = action.run(
            name, value, by=current_user(request), now=datetime.now(UTC), **more
        )
    except (
        ActionNotAllowed,
        InvalidManifest,
        PermissionDenied,
        RevisionConflict,
    ) as error:
        refusal = str(error).rstrip(".")
        if isinstance(error, InvalidManifest):
            refusal = "; ".join(one.message for one in error.errors)
        context |= {"refusal": _sentence(refusal, name), "is_refused": True}
        status = 403 if isinstance(error, PermissionDenied) else 409
        return render(request, "rollouts/action.html", context, status=status)
    messages.success(request, message)
    stays = action.name in ("pause", "resume") and request.POST.get("at") != "rollout"
    if (
        action.kind is ActionKind.STAGED
        or action.starts_rollout
        or is_on_cluster
        or stays
    ):
        return redirect(
            back
        )  # the page of a placement waits for a rollout that is about to start
    latest = latest_run(placement)
    return redirect("web:rollout", name, latest.number) if latest else redirect(back)


def _sentence(reason: str, name: str) -> str:
    """Begin a reason with a capital letter, but for the name of a placement or run."""
    return reason if reason.startswith(name) else capfirst(reason)
