"""The first page: what there is, what needs somebody, what was decided last."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve, reverse
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from clusters.listing import label_keys
from clusters.topology import members_by
from fleetui.access import for_readers
from fleetui.htmx import render_page, wants_fragment
from fleetui.roles import may_approve, may_operate
from fleetui.sharing import shared
from fleetui.unchanged import unchanged_since
from placements.demo import DEMO_SIZES
from placements.explain.charts.chart import Chart, Leads
from placements.explain.charts.waffle import (
    OPENED_UP_TO,
    Members,
    label_filter,
    state_filter,
    waffle_chart,
)
from placements.models import Decision
from placements.queries import overview as queries
from placements.queries.glance import MANY_CLUSTERS, ineligible_counts, tightest
from placements.queries.headroom import stale_placements
from placements.queries.rollout_needs import rollout_needs, waiting_count
from placements.queries.staged_approvals import first_waiting, waiting_for
from placements.queries.topology import favourite_key
from placements.views.chart_tables import asked_table
from placements.views.people import user_of
from placements.views.shell import runs_under_way
from placements.views.tight_rows import tight_row

_KEYS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision, and where it is compared with the one before."""

    decision: Decision
    compare: str


@for_readers
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show the fleet at a glance, which the page asks for again and again; on an empty hub, how to begin."""
    version = queries.pulse()
    is_table = "table" in request.GET
    if not is_table and (same := unchanged_since(request, version, queries.pulse)):
        return same
    if wants_fragment(request) and not is_table:
        if queries.is_untouched():
            return HttpResponseClientRefresh()
        return shared(request, _audience(request, version), lambda: _overview(request, version))
    return _overview(request, version)


def _audience(request: HttpRequest, version: str) -> tuple[str, ...]:
    """Name those who see the same: the same label, the same parts anew, and what an approver may approve."""
    approver = request.user.get_username() if may_approve(request.user) else ""
    operates = str(may_operate(request.user))
    return (request.path, version, _by(request), str(_has_fleet(request, version)), operates, approver)


def _overview(request: HttpRequest, version: str) -> HttpResponse:
    fleet = {} if _has_fleet(request, version) else _fleet(request)
    if fleet and not fleet["charts"] and queries.is_untouched():
        return render_page(request, "overview/empty.html", {"sizes": DEMO_SIZES})
    table = asked_table(request, fleet.get("charts", ()))
    if table:
        return table
    context = {"version": version, "is_news": wants_fragment(request), **fleet, **_news(request)}
    return render_page(request, "overview/overview.html", context, fragment="overview/_news.html")


def _by(request: HttpRequest) -> str:
    return request.GET.get("by", "").strip()


def _has_fleet(request: HttpRequest, version: str) -> bool:
    """Tell whether the page shows the clusters as they are: then they are not drawn again."""
    fleet = version.partition("-")[0]
    return wants_fragment(request) and request.GET.get("v", "").partition("-")[0] == fleet


def _fleet(request: HttpRequest) -> dict[str, Any]:
    """Give the picture of the fleet, and by which labels it can be drawn."""
    keys = [key for key, _ in label_keys()]
    by = _by(request) or favourite_key(keys)
    members = members_by(by)
    chart = waffle_chart(by, members)
    charts = [replace(chart, leads=_leads(by, members, chart))] if chart else []
    return {"charts": charts, "by": by, "keys": keys[:_KEYS_SHOWN], "has_fleet": True}


def _leads(by: str, members: Mapping[str | None, Members], chart: Chart) -> Leads:
    """Say where cells lead to: their cluster, or in a large fleet those that are alike."""
    is_large = sum(map(len, members.values())) > OPENED_UP_TO
    page = reverse("pages:clusters")
    labels = [quote(label_filter(by, value), safe=":") for value in members]
    states = ["", "", *(f"&state={state_filter(one.lower())}" for one in chart.columns[2:])]
    cells = tuple(
        tuple(
            f"{page}?label={label}{state}" if count else "" for state, count in zip(states, row, strict=True)
        )
        for label, row in zip(labels, chart.rows, strict=True)
    )
    return Leads(f"{page}?label={{y}}&state={{z}}" if is_large else f"{page}{{customdata}}/", cells)


def _news(request: HttpRequest) -> dict[str, Any]:
    """Give everything that moves but the picture of the fleet."""
    counts, under_way, waiting = queries.counts(), runs_under_way(request), waiting_count()
    return {
        "counts": counts,
        "runs": under_way,
        "runs_waiting": waiting,
        "is_calm": under_way == waiting and not counts.pending,
        **_needs(request, counts),
        "decisions": [DecisionRow(one, _compare(one)) for one in queries.last_decisions()],
        "placements": [tight_row(one) for one in tightest()],
    }


def _needs(request: HttpRequest, counts: queries.Counts) -> dict[str, Any]:
    """Give what needs somebody; of a large fleet clusters are counted, not named."""
    is_large = counts.clusters > MANY_CLUSTERS
    approvals, approvals_count = first_waiting(most=queries.MOST)
    stale, stale_count = stale_placements(most=queries.MOST)
    ineligible, leaving = ([], []) if is_large else queries.clusters_in_need()
    return {
        "most": queries.MOST,
        "approvals": [waiting_for(one, user_of(request)) for one in approvals],
        "approvals_count": approvals_count,
        "short": queries.short_placements() if counts.unfulfilled else [],
        "invalid": queries.invalid_placements() if counts.invalid else [],
        "stale": stale,
        "stale_count": stale_count,
        "rollouts": rollout_needs(),
        "faulty": queries.faulty_records(),
        "is_large": is_large,
        "ineligible_counts": ineligible_counts() if is_large else [],
        "ineligible": ineligible,
        "leaving": leaving,
    }


def _compare(decision: Any) -> str:
    """Give the address of the comparison with the decision before, where comparisons are served."""
    if not decision.before:
        return ""
    page = reverse("pages:placement", args=[decision.placement_name])
    address = f"{page}compare/{decision.before}..{decision.record.decision_id}/"
    try:
        resolve(address)
    except Resolver404:
        return ""
    return address
