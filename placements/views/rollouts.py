"""Rollouts: the list, one run while it lives, and the waves of a placement beforehand."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page, wants_fragment
from placements.explain.rollout_wording import held_back_sentence, under_way_sentence
from placements.explain.run_wording import VERDICT_WORDS, budget_sentences, progress_sentence, waiters_of
from placements.models import Placement, Rollout
from placements.queries.planning import plan_now
from placements.queries.run_clusters import ClusterInRun, clusters_in, names_in, progress_of
from placements.queries.run_history import run_charts
from placements.queries.runs import (
    Said,
    events_of,
    latest_run,
    pulse_of,
    run_named,
    runs_to_show,
    said_of,
)
from placements.rollout.answer import Answer
from placements.views import states
from placements.views.chart_tables import asked_table
from placements.views.happenings import happening_rows
from placements.views.lists import page_from, word_from

_ROWS, _EVENTS_SHOWN, _SHOWN = 50, 15, 8


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list of runs."""

    run: Rollout
    state: states.State
    ready: str


@for_readers
@require_safe
def rollouts(request: HttpRequest) -> HttpResponse:
    """List the runs, those that are under way first."""
    state = word_from(request, "state", _States)
    name = request.GET.get("placement", "").strip()
    rows = runs_to_show(placement=name, state=str(state or ""))
    running = rows.filter(state=Rollout.State.RUNNING).order_by("-id")[:_ROWS]
    is_first = not request.GET.get("after") and state is None
    ended = rows if state else rows.exclude(state=Rollout.State.RUNNING)
    page = page_from(request, ended, order="-id", unique="id")
    context = {
        "rows": [_row(run) for run in [*(running if is_first else ()), *page.rows]],
        "after": page.after,
        "states": list(_States),
        "state": state,
        "name": name,
    }
    return render_page(request, "rollouts/list.html", context, fragment="rollouts/_list.html")


_States = Rollout.State


def _row(run: Any) -> RunRow:
    is_running = run.state == Rollout.State.RUNNING and run.ready is not None
    return RunRow(run, states.run_state(run, run.verdict), f"{run.ready} of {run.of}" if is_running else "")


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One line of the clusters of a run."""

    row: ClusterInRun
    state: states.State


@for_readers
@require_safe
def rollout(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show one run; while it is under way the page asks for its living part again and again."""
    version = pulse_of(name, number)
    if not version:
        raise Http404(f"There is no run {number} of a placement {name}.")
    if wants_fragment(request) and request.GET.get("v") == version:
        return HttpResponse(status=204)
    run = run_named(name, number)
    charts = run_charts(run, now=datetime.now(UTC))
    return asked_table(request, charts) or render_page(
        request,
        "rollouts/rollout.html",
        {**_living(request, run), "charts": charts},
        fragment="rollouts/_live.html",
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
        "under_way": [(one.cluster, under_way_sentence(one)) for one in answer.under_way[:_SHOWN]],
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
