"""Staged runs: one of them while it lives, and starting one from the page of its placement."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.access import for_operators, for_readers
from fleetui.htmx import render_page
from fleetui.roles import may_operate
from fleetui.unchanged import unchanged_since
from placements.explain.staged_wording import run_sentences
from placements.models import Placement, StagedRun, StagedStrategy
from placements.operations.staged.starting import start_run
from placements.queries.lists import events_matching
from placements.queries.staged import answer_in
from placements.queries.staged_approvals import why_not_approve
from placements.queries.staged_preview import RunPreview, free_name, is_rollback, preview_of
from placements.queries.staged_stages import StageView, StepView, Window, pulse_of, stages_of
from placements.rollout.staged_facts import Answer, WaitFor
from placements.scheduling.door.staged_documents import RunState
from placements.scheduling.faults import Fault, Faults
from placements.staging import state_of
from placements.views import states
from placements.views.happenings import happening_rows
from placements.views.people import user_of

_EVENTS_SHOWN, _SNAPSHOTS_SHOWN, _NAMES_SHOWN = 15, 20, 20
_ASK_AN_OPERATOR = "you can view, but not change; ask a fleet operator"


@dataclass(frozen=True, slots=True)
class StepRow:
    """One line of the clusters of a stage."""

    view: StepView
    state: states.State


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage with its mark and its lines."""

    view: StageView
    state: states.State
    rows: tuple[StepRow, ...]


@for_readers
@require_safe
def staged_run(request: HttpRequest, name: str) -> HttpResponse:
    """Show one run; until it has ended the page asks for its living part again and again."""
    version = pulse_of(name)
    if not version:
        raise Http404(f"There is no staged run {name}.")
    if same := unchanged_since(request, version, partial(pulse_of, name)):
        return same
    run = StagedRun.objects.select_related("placement").prefetch_related("approvals").get(name=name)
    context = {"version": version, **_living(request, run)}
    return render_page(request, "rollouts/staged/run.html", context, fragment="rollouts/staged/_live.html")


def _living(request: HttpRequest, run: StagedRun) -> dict[str, Any]:
    answer = answer_in(run)
    stages = stages_of(run, answer, _window(request)) if answer else []
    timed = [one for one in answer.waits if one.what is WaitFor.TIME] if answer else []
    failed = [step.name for step in answer.run.steps if step.failed_at] if answer else []
    is_active = run.ended_at is None
    return {
        "run": run,
        "placement": run.placement,
        "now": datetime.now(UTC),
        "state": states.staged_state(run),
        "sentences": run_sentences(answer) if answer else ["The scheduler has not decided yet."],
        "is_active": is_active,
        "is_at_rest": answer is not None and _waits_for_somebody(answer),
        "is_prepared": state_of(run) is RunState.INITIALIZE,
        "may_stop": is_active and state_of(run) is RunState.RUN,
        "is_rollback": is_rollback(run),
        "strategy": run.strategy["metadata"]["name"],
        "stages": [_stage(one) for one in stages],
        "skippable": timed[0].stage if timed else "",
        "left_failed": [] if is_active else failed[:_NAMES_SHOWN],
        "again": "" if is_active else start_again(run),
        "why_not_operate": "" if may_operate(request.user) else _ASK_AN_OPERATOR,
        "why_not_approve": why_not_approve(run, user_of(request)),
        "events": happening_rows(
            events_matching(kind="staged-run", name=run.name).order_by("-id")[:_EVENTS_SHOWN]
        ),
    }


def _waits_for_somebody(answer: Answer) -> bool:
    """Tell whether nothing goes on until a person does something."""
    return bool(answer.waits) and all(wait.what in _PERSONS for wait in answer.waits)


_PERSONS = (WaitFor.RUN, WaitFor.RESUME, WaitFor.APPROVAL_BEFORE, WaitFor.APPROVAL_AFTER)


def _window(request: HttpRequest) -> Window | None:
    stage, first = request.GET.get("stage", ""), request.GET.get("from", "")
    number = int(first) if first.isdecimal() and len(first) < 10 else 0
    return Window(stage, number) if stage else None


def _stage(view: StageView) -> StageRow:
    rows = tuple(StepRow(one, _step_state(one)) for one in view.rows)
    return StageRow(view, states.stage_state(view.state, is_asking=view.waits_for_somebody), rows)


def _step_state(view: StepView) -> states.State:
    """Say what a cluster that is being worked on says itself, of the others how far the run is with them."""
    if view.state == "running" and view.phase:
        return states.phase_state(view.phase)
    return states.part_state(view.state)


@for_operators("start staged runs")
@require_http_methods(["GET", "HEAD", "POST"])
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Choose a strategy and resources and see the stages; then start a run, or only prepare it."""
    found = get_object_or_404(Placement, name=name)
    choice = _choice(request)
    if request.method != "POST":
        return _start_page(request, found, choice)
    try:
        run = start_run(
            request.POST.get("name", "").strip(),
            placement=name,
            strategy=choice.strategy,
            snapshot=choice.snapshot,
            is_prepared=request.POST.get("do") == "prepare",
            by=user_of(request),
            now=datetime.now(UTC),
        )
    except Faults as faults:
        return _start_page(request, found, choice, faults=faults.faults, status=422)
    messages.success(request, f"{run.name} {'begins' if run.started_at else 'is prepared'}.")
    return redirect("pages:staged-run", run.name)


@dataclass(frozen=True, slots=True)
class _Choice:
    """By which strategy to bring which resources; without a snapshot those that the hub has."""

    strategy: str
    snapshot: int | None


def _choice(request: HttpRequest) -> _Choice:
    given = request.POST if request.method == "POST" else request.GET
    written = given.get("snapshot", "")
    number = int(written) if written.isdecimal() and len(written) < 10 else None
    return _Choice(given.get("strategy", ""), number)


def _start_page(
    request: HttpRequest,
    placement: Placement,
    choice: _Choice,
    *,
    faults: tuple[Fault, ...] = (),
    status: int = 200,
) -> HttpResponse:
    strategies = list(StagedStrategy.objects.order_by("name").values_list("name", flat=True))
    snapshots = placement.resource_snapshots.defer("identities").order_by("-number")
    active = StagedRun.objects.filter(placement=placement, ended_at=None).order_by("pk")
    strategy = choice.strategy or (strategies[0] if len(strategies) == 1 else "")
    context = {
        "placement": placement,
        "strategies": strategies,
        "strategy": strategy,
        "snapshots": snapshots[:_SNAPSHOTS_SHOWN],
        "snapshot": choice.snapshot,
        "active": list(active.values_list("name", flat=True)),
        "preview": _preview(placement, strategy, choice.snapshot),
        "name": request.POST.get("name", "") or free_name(placement.name),
        "faults": faults,
    }
    page, part = "rollouts/staged/start.html", "rollouts/staged/_preview.html"
    return render_page(request, page, context, fragment=part, status=status)


def _preview(placement: Placement, strategy: str, snapshot: int | None) -> RunPreview | None:
    row = StagedStrategy.objects.filter(name=strategy).first()
    return preview_of(placement, row, snapshot, now=datetime.now(UTC)) if row else None


def start_again(run: StagedRun) -> str:
    """Give the address for starting a run like this one."""
    if run.placement is None:
        return ""
    strategy = run.strategy["metadata"]["name"]
    snapshot = {} if run.resource_number is None else {"snapshot": run.resource_number}
    query = urlencode({"strategy": strategy, **snapshot})
    return f"{reverse('pages:start-staged', args=[run.placement.name])}?{query}"
