"""Rollouts and staged runs: the list and the pending approvals, one rollout, the plan, actions of users."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, full_name
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page, wants_fragment
from fleetui.middleware import costly
from fleetui.pagination import Page
from fleetui.permissions import current_user, for_readers
from fleetui.polling import TOKEN, shared_fragment
from placements.engine.rollout.actions import BlockReason, RollingUpdateResult, RunPhase
from placements.engine.rollout.staged_run import (
    StagedRunPlan,
    StagedUpdateResult,
    WaitReason,
)
from placements.engine.rollout.waves import compare_limits
from placements.engine.status import GATES
from placements.explain.charts.rollouts import picture_figure
from placements.explain.rollouts import (
    HELD,
    UP_TO_DATE,
    action_words,
    blocked_groups,
    blocked_removals_sentence,
    eta_sentence,
    eta_words,
    phase_sentence,
    with_names,
)
from placements.explain.run_pages import (
    DONE,
    LEVELS,
    Part,
    RunCount,
    finished_in,
    gate_of,
    rolling_effects,
    staged_effects,
    staged_wait_rows,
    stages_completed,
    state_counts,
    verdict_words,
    wait_rows,
    with_troubles,
)
from placements.explain.run_pictures import (
    Dot,
    RunPicture,
    run_picture,
    stage_columns,
    stage_moments,
    wave_columns,
)
from placements.explain.vocabulary import seconds_between
from placements.manifests.placement import parse_placement
from placements.manifests.staged_update import (
    RunState,
)
from placements.models import (
    Placement,
    Rollout,
    Run,
    RunKind,
    StagedRun,
)
from placements.services.actions import ACTIONS, Action, ActionKind, Reasons
from placements.services.editor.operations import plan_now, plan_of_revision
from placements.services.filters import events_matching
from placements.services.health import health_of
from placements.services.history.compare import changed_count, changes_by_unpinning
from placements.services.resources.queries import selection_of
from placements.services.rollout_state import spec_state_of
from placements.services.rollouts.lists import (
    RunListState,
    active_runs,
    latest_runs,
    newest_run,
    runs_count,
    runs_page,
)
from placements.services.rollouts.operations import (
    LONGEST_COMMENT,
    ActionNotAllowed,
)
from placements.services.rollouts.queries import (
    applied_names,
    approvals_waiting,
    available_since,
    clusters_in,
    events_of,
    is_rollback,
    latest_run,
    messages_of,
    older_snapshot,
    parts_of,
    parts_of_steps,
    report_of,
    result_in,
    run_named,
    sentences_of,
    staged_run_named,
    waiting_for,
)
from placements.services.rollouts.staged_runs import plan_of
from placements.services.rollouts.stages import StageView, Window, stages_of
from placements.services.run_history import RunHistory, history_of, moments_of
from placements.templatetags.fleet import run_address, state_words
from placements.web import badges
from placements.web.activity import event_rows
from placements.web.filter_bar import Facet, filter_bar, read_typed
from placements.web.layout import live_page, operates_here
from placements.web.request import (
    actor,
    for_action,
    number_of,
    page_from,
    page_size,
    pager_of,
    range_from,
    start_of,
    word_from,
)

_ROWS, _CLUSTERS_SHOWN, _EVENTS_SHOWN, _MESSAGES, _NAMES_SHOWN = 50, 20, 50, 20, 20
TABS = ("clusters", "events", "plan")
"""Tabs of a rollout with an address of their own; its page shows its clusters."""
_APPROVAL = "approval"
_FILTERS = ("placement", "kind", "state", "waiting")


class RunRow(NamedTuple):
    """One line of the list of runs; a run in progress has `done` of `of` clusters."""

    run: Any
    url: str
    title: str
    state: badges.Badge
    began_at: datetime
    ended_reason: str
    eta: str


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
    if is_inbox:
        page: Page[Any] = page_from(request, pending, order="requested_at", unique="id")
        rows, count = (
            [waiting_for(row, current_user(request)) for row in page.rows],
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
        count = len(active) + runs_count(
            placement=name, text=text, state=state, kind=kind
        )
    facets = [
        Facet(
            "state",
            "Status",
            [
                (run_list_state, state_words(run_list_state), None)
                for run_list_state in RunListState
            ],
            is_row=True,
            without=("waiting",),
        ),
        Facet(
            "kind",
            "Type",
            [(kind, kind.capitalize(), None) for kind in RunKind],
            is_row=True,
            without=("waiting",),
        ),
        Facet(
            "waiting",
            "Waiting for",
            [(_APPROVAL, "Pending approval", pending.count())],
            is_row=True,
            without=("state", "kind"),
        ),
    ]
    return render_page(
        request,
        "rollouts/list.html",
        {
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
        },
        fragment="rollouts/_list.html",
    )


def run_rows(
    placement: Placement, *, most: int, kind: RunKind | None = None
) -> list[RunRow]:
    """Return the rollouts and staged update runs of a placement, those in progress first.

    None of an earlier placement of this name.
    """
    runs = latest_runs(placement=placement.full_name, most=most, kind=kind)
    own = [run for run in runs if run.placement == placement]
    return [_row(run) for run in sorted(own, key=lambda run: run.ended_at is not None)]


def _row(run: Any) -> RunRow:
    title, ended_reason, eta = run.label, "", ""
    if run.is_staged:
        title = f"{run.placement_name} · {run.label}"
    elif run.is_running:
        eta = eta_sentence(run.forecast, now=datetime.now(UTC))
    elif run.ended_reason != UP_TO_DATE:
        ended_reason = run.ended_reason
    began_at = run.started_at or run.created_at
    return RunRow(
        run, run_address(run), title, badges.run_state(run), began_at, ended_reason, eta
    )


@for_readers
@require_safe
def newest(_request: HttpRequest, name: str) -> HttpResponse:
    run = newest_run(name)
    if run is not None:
        return redirect(run_address(run))
    if Placement.objects.filter(full_name=name).exists():
        raise Http404(f"The placement {name} has no rollout yet.")
    raise Http404(
        f"No placement is named {name}, and no rollout of such a placement is kept."
    )


@for_readers
@require_safe
@live_page
def rollout(
    request: HttpRequest,
    name: str,
    number: int,
    tab: str = "clusters",
) -> HttpResponse:
    """Show one tab of a rollout; while it is in progress the page polls its fragment."""
    if wants_fragment(request) and "table" not in request.GET:
        # The same role and query get the same fragment; `v` differs by how new the page is.
        query = sorted((key, value) for key, value in request.GET.items() if key != "v")
        key = (request.path, operates_here(request), str(query))
        return shared_fragment(
            request, key, partial(_rollout, request, name, number, tab)
        )
    return _rollout(request, name, number, tab)


def _rollout(
    request: HttpRequest,
    name: str,
    number: int,
    tab: str,
) -> HttpResponse:
    run, now = run_named(name, number), datetime.now(UTC)
    placement = run.placement
    applied = applied_names(run.placement_id)
    report = report_of(run, applied)
    result = report.result
    is_latest = placement is not None and placement.runs_made == run.number
    has_plan = is_latest and not run.is_mirrored
    parts = with_troubles(parts_of(run), result)
    health = health_of(placement, now=now) if placement and not run.is_running else None
    why_not = Reasons(ActionKind.ROLLING, placement, stop=run)
    context = {
        **_run_context(
            request,
            run,
            parts,
            _picture(run, parts, history_of(run), result, now=now),
            now=now,
        ),
        "tab": tab,
        "why_not": why_not,
        "is_at_rest": result is not None and result.phase is RunPhase.HALTED,
        "has_plan": has_plan,
        "is_latest": is_latest,
        "verdict": verdict_words(parts.values(), _waits_words(parts, result)),
        "health": health,
        "health_state": badges.placement_state(health) if health else None,
        "clusters_count": len(parts),
    }
    if result:
        context |= _waiting_context(run, result)
    if run.is_running and has_plan and placement:
        context["effects"] = rolling_effects(
            parts.values(),
            name=placement.full_name,
            revision=run.revision_number,
            is_paused=placement.paused_since is not None,
            can_roll_back=not why_not["roll_back"],
        )
    if tab == "clusters":
        names = _in_order(run, parts, result)
        page = range_from(request, len(names), _CLUSTERS_SHOWN)
        shown = clusters_in(run, names[page.start : page.last], report)
        context["page"] = page
        context["clusters"] = [
            (
                row,
                part_state(row.phase, parts.get(row.cluster, Part.PENDING), row.block),
            )
            for row in shown
        ]
    elif tab == "events":
        context["events"] = event_rows(
            events_of(run).order_by("-at", "-id")[:_EVENTS_SHOWN]
        )
    elif tab == "plan":
        if not (has_plan and placement):
            raise Http404(
                f"Rollout {name}/{number} has no plan. The latest rollout of a placement has one."
            )
        context |= _plan_context(placement, applied)
    return _render_run(request, context)


def _run_context(
    request: HttpRequest,
    run: Run,
    parts: Mapping[str, Part],
    picture: RunPicture | None,
    *,
    now: datetime,
) -> dict[str, Any]:
    """Return what the page of a run of either kind shows: its status, its counts, its picture."""
    placement: Placement | None = run.placement
    has_gate = picture is not None and any(column.gate for column in picture.columns)
    return {
        "run": run,
        "placement": placement,
        "now": now,
        "state": badges.run_state(run),
        "is_running": run.is_running,
        "eta": eta_words(run.forecast, now=now) if run.is_running else "",
        "counts": state_counts(parts.values()),
        "failed_count": sum(part is Part.FAILED for part in parts.values()),
        "picture": picture,
        "figure_url": "" if has_gate else f"{request.path}?figure=picture",
    }


def _render_run(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    if context["picture"] and request.GET.get("figure") == "picture":
        return HttpResponse(
            picture_figure(context["picture"]).to_json(validate=True, engine="json"),
            content_type="application/json",
        )
    if wants_fragment(request) and not context["run"].is_staged:
        context["csrf_token"] = TOKEN
    return render_page(
        request, "rollouts/rollout.html", context, fragment="rollouts/_live.html"
    )


@for_readers
@require_safe
@live_page
def staged_run(request: HttpRequest, name: str) -> HttpResponse:
    """Show one staged run; until it has ended the page polls its fragment."""
    run, now = staged_run_named(name), datetime.now(UTC)
    result = result_in(run)
    user, spec_state = current_user(request), spec_state_of(run)
    wanted = request.GET.get("stage", "")
    start = number_of(request.GET.get("from", "")) or 0
    window = Window(wanted, start) if wanted else None
    stages = stages_of(run, result, window) if result else []
    plan = plan_of(run)
    waits = result.waits if result else ()
    skippable = next(
        (wait.stage for wait in waits if wait.reason is WaitReason.TIME), ""
    )
    parts = parts_of_steps(run, plan, now=now)
    asked = [
        approval for approval in run.approvals.all() if approval.approved_at is None
    ]
    pending = waiting_for(asked[0], user) if asked else None
    may_stop = run.is_running and spec_state is RunState.RUN
    context = _run_context(
        request, run, parts, _stages_picture(run, plan, parts, now=now), now=now
    )
    picture = context["picture"]
    if run.is_running and picture:
        words = ", ".join(["available", *picture.limits[:1]])
        context["limits"] = [RunCount(picture.available, words)]
    sentences = badges.without_status(sentences_of(run, result), context["state"])
    if run.is_mirrored and len(sentences) > 1:
        context["hub_sentence"] = sentences.pop(0)
    is_held = run.gate in GATES or run.forecast.get("reason") in HELD
    if is_held or len(sentences) == 1:  # the title continues after what is waited for
        sentences = [" ".join(sentences).removesuffix(".")]
    context |= {
        "tab": "",
        "sentences": sentences,
        "verdict": verdict_words(parts.values(), stages_completed(plan, parts))
        if result and run.is_running
        else "",
        "waits": staged_wait_rows(result, pending.who if pending else "an approver")
        if result
        else [],
        "approval": pending,
        **(_gate_context(run, result, parts) if pending and result else {}),
        "effects": [],
        "is_at_rest": bool(waits) and all(wait.reason in _BY_USERS for wait in waits),
        "is_prepared": spec_state is RunState.INITIALIZE,
        "may_stop": may_stop,
        "is_rollback": is_rollback(run),
        "strategy": full_name(run.namespace, run.strategy["metadata"]["name"]),
        "stages": [_stage_row(stage, run, wanted, parts) for stage in stages],
        "skippable": skippable,
        "left_failed": [],
        "again": "",
        "back": "",
        "why_not": Reasons(ActionKind.STAGED, run, user, skip_wait=skippable),
        "why_not_again": ACTIONS[ActionKind.STAGED, "resume"].refusal(run, user),
        "why_not_approve": ACTIONS[ActionKind.STAGED, "approve"].refusal(run, user),
        "events": event_rows(
            events_matching(kind="staged-run", name=run.full_name).order_by(
                "-at", "-id"
            )[:_EVENTS_SHOWN]
        ),
    }
    if not run.is_running:
        failed = [step.name for step in plan.steps if step.failed_at]
        context["left_failed"] = failed[:_NAMES_SHOWN]
        context["again"] = start_again(run, run.resource_number)
    elif result and not run.is_mirrored:
        older = older_snapshot(run)
        back = "No older resources are kept. Revision history restores an older policy; another run rolls it out."
        if older is not None:
            context["back"] = start_again(run, older.number)
            revision = older.revision_number
            number = "an older revision" if revision is None else f"revision {revision}"
            back = f"Starts another run with {number}, by the stages."
        context["effects"] = staged_effects(
            parts.values(),
            revision=run.revision_number,
            may_stop=may_stop,
            is_prepared=run.started_at is None,
            back=back,
        )
    return _render_run(request, context)


def _gate_context(
    run: StagedRun,
    result: StagedUpdateResult,
    parts: Mapping[str, Part],
) -> dict[str, Any]:
    """Return the evidence for a pending approval: the updated clusters, and what changes."""
    context: dict[str, Any] = {
        "gate": gate_of(result, parts, available_since=available_since(run))
    }
    older, own = older_snapshot(run), run.resource_snapshot
    if older is not None and own is not None:
        context |= {
            "changes": f"{changed_count(older, own):,} of {own.objects_count:,} resources changed",
            "older": f"s{older.number}",
            "newer": f"s{own.number}",
        }
    return context


def _stages_picture(
    run: StagedRun,
    plan: StagedRunPlan,
    parts: Mapping[str, Part],
    *,
    now: datetime,
) -> RunPicture | None:
    """Return the stages with the gates between them, and the line of observed available clusters."""
    until = run.ended_at or now
    since = run.started_at or until
    dots = {}
    for step in plan.steps:
        took = (
            seconds_between(step.started_at, step.done_at or until)
            if step.started_at
            else None
        )
        part = parts[step.name]
        dots[step.name] = Dot(step.name, LEVELS[part], part, took)
    moments = moments_of(run, since=since)
    if not moments and run.is_mirrored:
        # As the hub observed its steps.
        moments = stage_moments(plan, parts, since=since)
    return run_picture(
        stage_columns(plan, dots, since=since, until=until),
        moments,
        until=seconds_between(since, until),
        is_running=run.is_running,
        has_maximum=False,
        unit="stage",
        is_held=run.forecast.get("reason") in HELD,
    )


def _stage_row(
    stage: StageView,
    run: StagedRun,
    wanted: str,
    parts: Mapping[str, Part],
) -> tuple[StageView, badges.Badge, int, list[Any]]:
    """Return a stage with its status, how many of its clusters are finished, and its clusters.

    Counted are clusters as in the picture, also those with the revision before their turn. A large stage
    shows its clusters only in its turn.
    """
    state = badges.stage_state(stage.state, run, failed=stage.failed)
    is_shown = stage.state == "current" or stage.failed or wanted == stage.stage.name
    rows = stage.rows if is_shown or stage.total == len(stage.rows) else ()
    steps = [(row, part_state(row.phase, parts[row.step.name])) for row in rows]
    return stage, state, finished_in(stage.stage, parts), steps


_BY_USERS = (
    WaitReason.RUN,
    WaitReason.RESUME,
    WaitReason.APPROVAL_BEFORE,
    WaitReason.APPROVAL_AFTER,
)
"""A run that waits for nothing else continues only after an action of a user."""


def start_again(run: StagedRun, snapshot: int | None) -> str:
    """Return the address for starting a run like this one, with a resource snapshot."""
    if run.placement is None:
        return ""
    query = {"strategy": run.strategy["metadata"]["name"]}
    if snapshot is not None:
        query["snapshot"] = str(snapshot)
    return reverse("web:staged-run-create", args=[run.placement.full_name], query=query)


def _waits_words(parts: Mapping[str, Part], result: RollingUpdateResult | None) -> str:
    """Return what a rollout waits for, for its verdict; empty where nothing is left."""
    if result is None:
        return ""
    if any(
        cluster.reason in (BlockReason.PAUSED, BlockReason.STOPPED)
        for cluster in result.blocked
    ):
        return "no new updates start"
    updating = sum(part is Part.UPDATING for part in parts.values())
    return f"waits for {counted(updating, 'cluster')}" if updating else ""


def _picture(
    run: Rollout,
    parts: Mapping[str, Part],
    history: RunHistory,
    result: RollingUpdateResult | None,
    *,
    now: datetime,
) -> RunPicture:
    """Return the waves that started and those that are planned, with the line of available clusters."""
    until = seconds_between(run.started_at, run.ended_at or now)
    took = {
        start.cluster: (start.ended or until) - start.at for start in history.starts
    }
    dots = {
        name: Dot(name, LEVELS[part], str(part), took.get(name))
        for name, part in parts.items()
    }
    others = [name for name in parts if name not in took]
    before = [name for name in others if parts[name] in DONE]
    waiting = set(others) - set(before)
    planned = set(chain(*run.waves))
    left = [name for name in others if name not in planned]
    pending = [
        [name for name in wave if name in waiting] for wave in [*run.waves, left]
    ]
    rest = (
        (badges.run_state(run).words.partition(" ")[0], phase_sentence(result))
        if result and result.phase is RunPhase.HALTED
        else None
    )
    columns = wave_columns(
        history.starts,
        pending,
        before,
        dots,
        until=until,
        is_running=run.is_running,
        rest=rest,
    )
    return run_picture(
        columns,
        history.moments,
        until=until,
        is_running=run.is_running,
        has_maximum=history.adds,
        unit="wave",
        is_held=run.forecast.get("reason") in HELD,
    )


def _in_order(
    run: Rollout, parts: Mapping[str, Part], result: RollingUpdateResult | None
) -> list[str]:
    """Return the clusters of a rollout, those that need attention first."""
    names = list(parts)
    if run.is_running:
        names = list(dict.fromkeys([*chain(*run.waves), *sorted(parts)]))
    blocked = {cluster.cluster for cluster in result.blocked} if result else set[str]()
    names.sort(
        key=lambda one: _ORDER[None if one in blocked else parts.get(one, Part.PENDING)]
    )
    return names


def part_state(phase: str, part: Part, block: str = "") -> badges.Badge:
    """Return the status of a cluster in the words of the counts, with its phase where that says more."""
    detail = badges.phase_state(phase, block)
    says_more = part in (Part.UPDATING, Part.REMOVED) or detail.words == "Unreachable"
    if phase and says_more:
        return detail
    return badges.Badge(LEVELS[part], part.capitalize())


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


def _waiting_context(run: Rollout, result: RollingUpdateResult) -> dict[str, Any]:
    """Return why more does not happen now: limits, blocked clusters, and those in progress."""
    budgets, removals = result.budgets, result.blocked_removals
    updates = budgets.updates
    limits = []
    if not budgets.deletion and updates.ready and not run.is_initial:
        available = max(0, updates.ready - updates.at_risk)
        away = max(0, updates.number - available)
        limits = [
            RunCount(
                f"{available:,}",
                f"available, minimum {updates.minimum:,} of {updates.number:,} selected",
            ),
            RunCount(f"{away:,} of {updates.limit:,}", "of max unavailable used"),
        ]
    named = [
        *(cluster.cluster for cluster in result.in_progress[:_MESSAGES]),
        *(group.clusters[0] for group in blocked_groups(result)),
    ]
    return {
        "waits": wait_rows(result, messages_of(run, named)),
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


def _plan_context(
    placement: Placement, applied: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the waves that a placement needs from the current state of its clusters."""
    now = datetime.now(UTC)
    planned, names, running = plan_now(placement, now=now, applied=applied)
    waves = []
    for wave in planned.waves[:_ROWS]:
        rows = grouped(
            (action_words(action, running.get(action.cluster), names), action.cluster)
            for action in wave.actions
        )
        waves += [
            (wave.number if at == 0 else None, words, clusters[:_ROWS], len(clusters))
            for at, (words, clusters) in enumerate(rows.items())
        ]
    compared = compare_limits(planned) if planned.waves else []
    most = max((limit.waves for limit in compared), default=0)
    return {
        "placement": placement,
        "own_limit": planned.state.strategy.max_unavailable,
        "compared_limits": [(limit, 100 * limit.waves // most) for limit in compared],
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
    request: HttpRequest,
    name: str,
    kind: ActionKind,
    action: str,
    value: str = "",
) -> HttpResponseBase:
    """Show the confirmation, or run an action; a refusal is shown on the same page."""
    return for_action(kind, action)(_run_action)(
        request, action=ACTIONS[kind, action], name=name, value=value
    )


def _unpin_context(placement: Placement) -> dict[str, Any]:
    """Return what unpinning would do: the clusters, the waves, the changes of resources."""
    context = {
        # Read only where nothing refuses it.
        "plan": SimpleLazyObject(
            partial(plan_of_revision, placement, now=datetime.now(UTC))
        ),
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
    request: HttpRequest,
    action: Action,
    name: str,
    value: str,
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
        message = action.run(name, value, **actor(request), **context.get("more", {}))
    except (
        ActionNotAllowed,
        InvalidManifest,
        PermissionDenied,
        RevisionConflict,
    ) as error:
        refusal = str(error).rstrip(".")
        if isinstance(error, InvalidManifest):
            refusal = "; ".join(field_error.message for field_error in error.errors)
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
