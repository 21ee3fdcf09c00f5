"""One decision: how it came out, step by step, why not the others, and all its pictures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.explain.charts.build_up import build_up_chart
from placements.explain.charts.chart import Chart, Leads
from placements.explain.charts.cloud import cloud_chart
from placements.explain.charts.funnel import funnel_chart, stages
from placements.explain.charts.groups import group_chart
from placements.explain.charts.heatmap import heatmap_chart
from placements.explain.charts.matrix import label_keys, matrix_chart
from placements.explain.charts.skews import skew_chart
from placements.explain.sentences import policy_sentence
from placements.explain.wording import bindings_sentence, headline
from placements.models import Decision, HypotheticalDecision, Rollout
from placements.queries.lineage import run_after
from placements.queries.records import (
    AnyDecision,
    decision_of,
    decisions_named,
    outcomes_of,
    traps_of,
    ways_of,
)
from placements.queries.what_if import hypothetical_named
from placements.scheduling.decision import Decision as DecisionValue
from placements.scheduling.outcomes import Outcome
from placements.scheduling.reasons import ReasonCode
from placements.views.chart_tables import address_with, asked_table
from placements.views.decided_clusters import cluster_list
from placements.views.decision_download import FORMATS, download
from placements.views.lists import unknown_words, word_from
from placements.views.replaying import played, step_from
from placements.views.why_not import chooser_of, why_of

Charts = dict[str, Callable[[], Chart | None]]


class View(StrEnum):
    """What stands at the bottom of the page, one at a time."""

    CLUSTERS = "clusters"
    FUNNEL = "funnel"
    SCORES = "scores"
    CLOUD = "cloud"
    JOINT = "joint"
    INPUTS = "inputs"


_TITLES = {
    View.CLUSTERS: "All clusters",
    View.FUNNEL: "Funnel",
    View.SCORES: "Score heatmap",
    View.CLOUD: "Score cloud",
    View.JOINT: "Two labels together",
    View.INPUTS: "Inputs",
}
_ONLY_WITH_STEPS = (View.SCORES, View.CLOUD)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for: a step, a cluster, a view and its two label keys."""

    step: int | None
    cluster: str
    view: View
    keys: tuple[str, ...]


@for_readers
@require_safe
def decision(request: HttpRequest, prefix: str) -> HttpResponse:
    """Show the decision with this id, or the one whose id begins so."""
    found: Sequence[Decision | HypotheticalDecision] = decisions_named(prefix) or hypothetical_named(prefix)
    if not found:
        raise Http404(f"No decision has an id that begins with {prefix[:40]}.")
    if len(found) > 1:
        return render(request, "decisions/several.html", {"prefix": prefix, "decisions": found})
    if found[0].record.decision_id != prefix:
        target = redirect("pages:decision", found[0].record.decision_id)
        query = request.GET.urlencode()
        target["Location"] += f"?{query}" if query else ""
        return target
    if request.GET.get("download") in FORMATS:
        return download(found[0], cluster_list(request, found[0]), request.GET["download"])
    asked = _asked(request, found[0])
    table = asked_table(request, _chart_named(request, charts_of(request, found[0], asked)))
    return table or render_page(
        request,
        "decisions/decision.html",
        _context(request, found[0], asked),
        fragment="decisions/_record.html",
    )


@for_readers
@require_safe
def decided_cluster(request: HttpRequest, prefix: str, cluster: str) -> HttpResponse:
    """Show why one cluster is where it is, at an address of its own."""
    found = _named(prefix)
    if len(found) != 1 or cluster not in decision_of(found[0]).cycle.fleet.positions:
        raise Http404(f"There is no such decision on a cluster named {cluster[:63]}.")
    if found[0].record.decision_id != prefix:
        return redirect("pages:decided-cluster", found[0].record.decision_id, cluster)
    why = why_of(found[0], cluster)
    charts = (why.build_up,) if why.build_up else ()
    context = {**_head(found[0]), "why": why, "asked": cluster, "chooser": chooser_of(found[0], cluster)}
    return asked_table(request, charts) or render_page(request, "decisions/cluster.html", context)


def _named(prefix: str) -> Sequence[AnyDecision]:
    return decisions_named(prefix) or hypothetical_named(prefix)


def charts_of(request: HttpRequest, row: AnyDecision, asked: Asked) -> Charts:
    """Give every chart of the page by its name, drawn when called."""
    value, outcomes = decision_of(row), outcomes_of(row)
    charts: Charts = {
        "groups": partial(group_chart, value, asked.step),
        "skews": partial(_skews, request, value, asked.step),
        "funnel": partial(funnel_chart, outcomes),
        "scores": partial(heatmap_chart, value, outcomes, asked.step),
        "cloud": partial(cloud_chart, value, asked.step),
    }
    if len(asked.keys) == 2:
        charts["matrix"] = partial(matrix_chart, value, *asked.keys)
    if asked.cluster in value.cycle.fleet.positions:
        charts["build-up"] = partial(build_up_chart, value, asked.cluster)
    return charts


def _skews(request: HttpRequest, value: DecisionValue, step: int | None) -> Chart | None:
    """Draw the skews; each step leads to its replay."""
    chart = skew_chart(value, step)
    if chart is None:
        return None
    here = address_with(request, step=None)
    before = here if here == "?" else f"{here}&"
    cells = tuple((f"{before}step={row[0]}#replay",) for row in chart.rows)
    return replace(chart, leads=Leads(f"{before}step={{x}}#replay", cells))


def _chart_named(request: HttpRequest, charts: Charts) -> list[Chart]:
    """Draw only the chart whose table is asked for."""
    name = request.GET.get("table", "")
    chart = charts[name]() if name in charts else None
    return [chart] if chart else []


def _asked(request: HttpRequest, row: AnyDecision) -> Asked:
    value = decision_of(row)
    return Asked(
        step_from(request, value),
        request.GET.get("cluster", "").strip(),
        word_from(request, "view", View) or View.CLUSTERS,
        _keys(request, label_keys(value)),
    )


def _keys(request: HttpRequest, known: list[str]) -> tuple[str, ...]:
    """Read the two label keys of the matrix; what is not given is the first that is left."""
    wanted = [request.GET.get(name, "") for name in ("key", "key2")]
    taken = [key for key in dict.fromkeys(wanted) if key in known]
    rest = (key for key in known if key not in taken)
    chosen = [key if key in taken else next(rest, "") for key in wanted]
    return tuple(key for key in dict.fromkeys(chosen) if key)


def _context(request: HttpRequest, row: AnyDecision, asked: Asked) -> dict[str, Any]:
    value = decision_of(row)
    is_known = asked.cluster in value.cycle.fleet.positions
    charts = charts_of(request, row, asked)
    return {
        **_head(row),
        "played": played(row, asked.step, asked.cluster) if asked.step else None,
        "step_charts": [one for one in (charts["groups"](), charts["skews"]()) if one],
        "asked": asked.cluster,
        "why": why_of(row, asked.cluster) if is_known else None,
        "chooser": chooser_of(row, asked.cluster),
        "view": str(asked.view),
        "views": _views(row, asked),
        "unknown": unknown_words(request, view=View, outcome=Outcome, reason=ReasonCode, download=FORMATS),
        **_shown(request, row, asked, charts),
    }


def _head(row: AnyDecision) -> dict[str, Any]:
    """Give what stands above the record."""
    value = decision_of(row)
    return {
        "decision": row,
        **_scenario(row),
        "value": value,
        "headline": headline(value),
        "sentence": policy_sentence(value.cycle.policy, value.cycle.semantics, value.cycle.options),
        "traps": traps_of(row),
        "ways": ways_of(row),
        "clusters_count": len(value.cycle.fleet),
        "placed_count": len(value.picked_names) + len(value.kept),
        "run": _run_of(row),
    }


def _scenario(row: AnyDecision) -> dict[str, Any]:
    """Name the question that a hypothetical decision answers."""
    if isinstance(row, HypotheticalDecision):
        return {"scenario": row.scenario, "variant": row.variant}
    return {"scenario": None, "variant": ""}


def _run_of(row: AnyDecision) -> tuple[str, str] | None:
    """Name the run that carried the decision out, with its address."""
    run = None if isinstance(row, HypotheticalDecision) else run_after(row)
    if run is None:
        return None
    if isinstance(run, Rollout):
        return f"run {run.number}", reverse("pages:rollout", args=[run.placement_name, run.number])
    return f"staged run {run.name}", reverse("pages:staged-run", args=[run.name])


def _views(row: AnyDecision, asked: Asked) -> list[tuple[str, str, bool]]:
    has_steps = bool(decision_of(row).number_of_rounds)
    return [
        (str(view), title, view is asked.view)
        for view, title in _TITLES.items()
        if has_steps or view not in _ONLY_WITH_STEPS
    ]


def _shown(request: HttpRequest, row: AnyDecision, asked: Asked, charts: Charts) -> dict[str, Any]:
    """Give what the chosen view shows, and nothing of the others."""
    value = decision_of(row)
    match asked.view:
        case View.CLUSTERS:
            return {"list": cluster_list(request, row), "view_chart": None}
        case View.FUNNEL:
            return {"view_chart": charts["funnel"](), "stages": stages(outcomes_of(row))}
        case View.JOINT:
            chart = charts["matrix"]() if "matrix" in charts else None
            return {"view_chart": chart, "keys": asked.keys, "known_keys": label_keys(value)}
        case View.INPUTS:
            cycle = value.cycle
            bindings = bindings_sentence(cycle) if cycle.bindings else "none: nothing was placed before"
            return {"view_chart": None, "bindings": bindings}
    return {"view_chart": charts[str(asked.view)]()}
