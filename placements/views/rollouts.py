"""Rollouts: runs of both sorts and what waits for approval, one run while it lives, waves beforehand."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page, wants_fragment
from fleetui.roles import may_operate
from fleetui.sharing import TOKEN, shared
from fleetui.unchanged import unchanged_since
from placements.explain.rollout_wording import held_back_sentence, under_way_sentence
from placements.explain.run_wording import VERDICT_WORDS, budget_sentences, progress_sentence, waiters_of
from placements.explain.wording import NONE
from placements.models import ApprovalRequest, Placement, Rollout
from placements.queries.all_runs import Standing, active_runs, newest_run, runs_page
from placements.queries.planning import plan_now
from placements.queries.run_clusters import ClusterInRun, clusters_in, names_in, progress_of
from placements.queries.run_history import run_charts
from placements.queries.runs import (
    Said,
    events_of,
    latest_run,
    pulse_of,
    run_named,
    said_of,
)
from placements.queries.staged_approvals import approvals_waiting, waiting_for
from placements.rollout.answer import Answer, Verdict
from placements.views import states
from placements.views.chart_tables import asked_table
from placements.views.happenings import happening_rows
from placements.views.lists import PAGE_SIZE, page_from, unknown_words, word_from
from placements.views.people import user_of

_ROWS, _EVENTS_SHOWN, _SHOWN = 50, 15, 8
_APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list of runs."""

    url: str
    title: str
    is_staged: bool
    state: states.State
    resources: str
    ready: str
    began_at: datetime
    ended_at: datetime | None
    because: str
    ended_because: str


@for_readers
@require_safe
def rollouts(request: HttpRequest) -> HttpResponse:
    """List the runs of both sorts, those that are under way first, or what waits for an approval."""
    name = request.GET.get("placement", "").strip()
    waiting = approvals_waiting()
    waiting = waiting.filter(run__placement_name=name) if name else waiting
    is_inbox = request.GET.get("waiting") == _APPROVAL
    context = {
        "name": name,
        "states": list(Standing),
        "unknown": unknown_words(request, state=Standing, waiting=(_APPROVAL,)),
        "state": word_from(request, "state", Standing),
        "is_inbox": is_inbox,
        "waiting": waiting.count(),
        **(_inbox(request, waiting) if is_inbox else _runs(request, name)),
    }
    return render_page(request, "rollouts/list.html", context, fragment="rollouts/_list.html")


def _inbox(request: HttpRequest, waiting: QuerySet[ApprovalRequest]) -> dict[str, Any]:
    page = page_from(request, waiting, order="asked_at", unique="id")
    return {"rows": [waiting_for(one, user_of(request)) for one in page.rows], "after": page.after}


def _runs(request: HttpRequest, name: str) -> dict[str, Any]:
    standing, after = word_from(request, "state", Standing), request.GET.get("after", "")
    active = [] if standing or after else active_runs(placement=name, most=_ROWS)
    page = runs_page(placement=name, standing=standing, after=after, size=PAGE_SIZE)
    return {"rows": [_row(run) for run in [*active, *page.rows]], "after": page.after}


def _row(run: Any) -> RunRow:
    return _rolling_row(run) if isinstance(run, Rollout) else _staged_row(run)


def _rolling_row(run: Any) -> RunRow:
    is_running = run.state == Rollout.State.RUNNING and run.ready is not None
    number = NONE if run.resource_number is None else f"r{run.resource_number}"
    return RunRow(
        reverse("pages:rollout", args=[run.placement_name, run.number]),
        f"{run.placement_name} · {run.number}",
        False,
        states.run_state(run, run.verdict),
        "deletion" if run.is_deletion else number,
        f"{run.ready} of {run.of}" if is_running else "",
        run.started_at,
        run.ended_at,
        f"{run.started_by}: {run.because}",
        "" if run.state == Rollout.State.FINISHED else run.ended_because,
    )


def _staged_row(run: Any) -> RunRow:
    is_running = run.ended_at is None and run.of is not None
    return RunRow(
        reverse("pages:staged-run", args=[run.name]),
        f"{run.placement_name} · {run.name}",
        True,
        states.staged_state(run),
        NONE if run.resource_number is None else f"r{run.resource_number}",
        f"{run.done} of {run.of} in {run.stage}" if is_running else "",
        run.started_at or run.created_at,
        run.ended_at,
        f"{run.started_by or run.created_by}: strategy {run.strategy_name}",
        "",
    )


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One line of the clusters of a run."""

    row: ClusterInRun
    state: states.State


@for_readers
@require_safe
def newest(_request: HttpRequest, name: str) -> HttpResponse:
    """Lead to the run of a placement that began last."""
    found = newest_run(name)
    if found is None and Placement.objects.filter(name=name).exists():
        raise Http404(f"The placement {name} has had no run yet.")
    if found is None:
        raise Http404(f"There is no placement {name}, and no run of one.")
    if isinstance(found, Rollout):
        return redirect("pages:rollout", name, found.number)
    return redirect("pages:staged-run", found.name)


@for_readers
@require_safe
def rollout(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show one run; while it is under way the page asks for its living part again and again."""
    version = pulse_of(name, number)
    if not version:
        raise Http404(f"There is no run {number} of a placement {name}.")
    if same := unchanged_since(request, version, partial(pulse_of, name, number)):
        return same
    if wants_fragment(request) and "table" not in request.GET:
        return shared(request, _audience(request, version), lambda: _rollout(request, name, number))
    return _rollout(request, name, number)


def _audience(request: HttpRequest, version: str) -> tuple[str, ...]:
    """Name those who see the same: what is new to them may differ, what they see does not."""
    asked = sorted((key, value) for key, value in request.GET.items() if key != "v")
    return (request.path, version, str(may_operate(request.user)), str(asked))


def _rollout(request: HttpRequest, name: str, number: int) -> HttpResponse:
    run = run_named(name, number)
    charts = run_charts(run, now=datetime.now(UTC))
    context = {**_living(request, run), "charts": charts}
    if wants_fragment(request):
        context["csrf_token"] = TOKEN
    return asked_table(request, charts) or render_page(
        request, "rollouts/rollout.html", context, fragment="rollouts/_live.html"
    )


def _living(request: HttpRequest, run: Rollout) -> dict[str, Any]:
    said, now = said_of(run), datetime.now(UTC)
    answer = said.answer
    latest = latest_run(run.placement) if run.placement else None
    return {
        "run": run,
        "placement": run.placement,
        "state": states.run_state(run, str(answer.verdict) if answer else None),
        "version": f"{run.changes}.{run.placement.revision if run.placement else 0}",
        "is_running": run.state == Rollout.State.RUNNING,
        "is_at_rest": answer is not None and answer.verdict is Verdict.HALTED,
        "now": now,
        "is_latest": latest is not None and latest.pk == run.pk,
        "latest": latest,
        "sentence": _sentence(run, said, now),
        "why": _why(answer) if answer else None,
        "events": happening_rows(events_of(run).order_by("-id")[:_EVENTS_SHOWN]),
        **_clusters(request, run, said),
    }


def _sentence(run: Rollout, said: Said, now: datetime) -> str:
    progress = progress_of(run, now=now)
    if progress is None:
        return run.ended_because
    return progress_sentence(progress, said.answer.budgets if said.answer else None)


def _why(answer: Answer) -> dict[str, Any]:
    """Give why more does not happen now: the numbers, who waits, what is under way."""
    held = answer.held_back
    return {
        "verdict": VERDICT_WORDS[answer.verdict],
        "budgets": budget_sentences(answer.budgets),
        "waiting": [
            (one, one.clusters[:_SHOWN], one.count - len(one.clusters[:_SHOWN])) for one in waiters_of(answer)
        ],
        "under_way": [(one.cluster, under_way_sentence(one), one.until) for one in answer.under_way[:_SHOWN]],
        "more_under_way": max(0, len(answer.under_way) - _SHOWN),
        "held_back": held_back_sentence(held) if held else "",
    }


def _clusters(request: HttpRequest, run: Rollout, said: Said) -> dict[str, Any]:
    names = names_in(run)
    first = _number(request.GET.get("from", ""), most=len(names))
    rows = clusters_in(run, names[first : first + _ROWS], said)
    last = first + len(rows)
    return {
        "clusters": [ClusterRow(row, states.phase_state(row.phase)) for row in rows],
        "first": first + 1,
        "last": last,
        "total": len(names),
        "earlier": max(0, first - _ROWS) if first else None,
        "later": last if last < len(names) else None,
    }


def _number(given: str, *, most: int) -> int:
    number = int(given) if given.isdecimal() and len(given) < 10 else 0
    return number if number < most else 0


@for_readers
@require_safe
def plan(request: HttpRequest, name: str) -> HttpResponse:
    """Show the waves that a placement needs from where its clusters are."""
    found = get_object_or_404(Placement, name=name)
    planned = plan_now(found, now=datetime.now(UTC))
    waves = [
        (wave, wave.actions[:_ROWS], max(0, len(wave.actions) - _ROWS)) for wave in planned.waves[:_ROWS]
    ]
    context = {
        "placement": found,
        "waves": waves,
        "more": max(0, len(planned.waves) - _ROWS),
        "total": len(planned.waves),
        "why": _why(planned.rest),
        "is_done": not planned.rest.waiting,
    }
    return render_page(request, "rollouts/plan.html", context)
