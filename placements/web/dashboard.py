"""The overview: totals, what needs attention, the placements with the least headroom, recent decisions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from clusters.filters import label_keys, members_by
from fleetui.apimachinery.model import Semantics
from fleetui.htmx import render_page, wants_fragment
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.permissions import Role, for_readers, may_approve, may_operate, teams_of
from fleetui.polling import not_modified, shared_fragment
from placements.explain.charts.figure import Chart, Leads
from placements.explain.charts.fleet import (
    OPENED_UP_TO,
    STATES,
    Members,
    label_filter,
    state_filter,
    waffle_chart,
)
from placements.explain.health import HealthLevel
from placements.explain.vocabulary import measure_word
from placements.services.dashboard import queries
from placements.services.dashboard.queries import (
    MANY_CLUSTERS,
    PlacementHeadroom,
    ineligible_counts,
    least_headroom,
)
from placements.services.demo.fleets import DEMO_SIZES
from placements.services.fleet.queries import Skew, favourite_key, stale_placements
from placements.services.hubs.queries import disagreements
from placements.services.rollouts.approvals import first_waiting, waiting_for
from placements.services.rollouts.attention import needs_attention, waiting_count
from placements.web import badges
from placements.web.layout import counts_of
from placements.web.request import asked_table, current_user
from placements.web.resilience import overview_card


@dataclass(frozen=True, slots=True)
class TightRow:
    """One placement with its headroom and the status of its rollout; `measure` is the word for its limits."""

    tight: PlacementHeadroom
    picked: str
    state: badges.Badge
    skews: list[tuple[Skew, badges.Badge]]
    run: badges.Badge | None
    measure: str


def tight_row(tight: PlacementHeadroom) -> TightRow:
    run = badges.run_state(tight.run, tight.verdict) if tight.run else None
    run = badges.staged_state(tight.staged) if tight.staged else run
    skews = [
        (
            one,
            badges.Badge(
                "attention" if one.skew > one.most else "healthy", f"{one.key} {one.skew} / {one.most}"
            ),
        )
        for one in tight.skews
    ]
    placement = tight.placement
    return TightRow(
        tight,
        badges.picked_of(placement),
        badges.placement_state(tight.health),
        skews,
        run,
        measure_word(Semantics(placement.semantics)),
    )


@dataclass(frozen=True, slots=True)
class TilePart:
    """A part of a total: its level, its words and the list that shows it."""

    level: str
    words: str
    url: str


@dataclass(frozen=True, slots=True)
class Tile:
    """A total of the overview: the page that lists it, and the parts that deserve a look."""

    title: str
    url: str
    total: int
    parts: list[TilePart]
    ready: int | None = None
    """How many of the total are ready, for a bar."""

    @property
    def level(self) -> str:
        """The worst level of the parts."""
        levels = {part.level for part in self.parts}
        order = (one.value for one in HealthLevel if one.value in levels)
        return next(order, HealthLevel.HEALTHY if self.total else HealthLevel.SUSPENDED)


def _tiles(counts: queries.Counts, runs: int, waiting: int, approvals: int) -> list[Tile]:
    clusters, placements, rollouts = (
        reverse(f"web:{name}") for name in ("clusters", "placements", "rollouts")
    )
    of_clusters = (
        ("failed", counts.not_eligible, "not ready", f"{clusters}?state=not-eligible"),
        ("attention", counts.late, "heartbeat late", f"{clusters}?state=heartbeat-late"),
        ("suspended", counts.cordoned, "cordoned", f"{clusters}?state=cordoned"),
        ("progress", counts.leaving, "leaving", f"{clusters}?state=leaving"),
        ("unknown", counts.not_monitored, "not monitored", f"{clusters}?state=not-monitored"),
    )
    # A placement that is not fulfilled is degraded too.
    degraded = counts.degraded if counts.degraded > counts.unfulfilled + counts.invalid else 0
    of_placements = (
        ("failed", counts.invalid, "with invalid selectors", f"{placements}?state=invalid"),
        ("attention", counts.unfulfilled, "not fulfilled", f"{placements}?state=unfulfilled"),
        ("attention", degraded, "degraded or failed", f"{placements}?state=degraded"),
        ("attention", counts.broken, "with broken assertions", f"{placements}?state=assertion-broken"),
        ("progress", counts.pending, "scheduling", f"{placements}?state=pending"),
    )
    of_rollouts = (
        ("attention", waiting, "stalled or waiting for approval", rollouts),
        ("attention", approvals, f"pending approval{'s' * (approvals != 1)}", f"{rollouts}?waiting=approval"),
    )

    def parts(found: Iterable[tuple[str, int, str, str]]) -> list[TilePart]:
        return [TilePart(level, f"{count:,} {words}", url) for level, count, words, url in found if count]

    return [
        Tile("Clusters", clusters, counts.clusters, parts(of_clusters), ready=counts.ready),
        Tile("Placements", placements, counts.placements, parts(of_placements)),
        Tile("Rollouts in progress", rollouts, runs, parts(of_rollouts)),
    ]


_KEYS_SHOWN = 50
_VERSIONS_OF_FLEET = 2


@for_readers
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show the overview, which the page polls; on an empty hub the first steps."""
    version = queries.pulse()
    is_table = "table" in request.GET
    if not is_table and (same := not_modified(request, version, queries.pulse)):
        return same
    if wants_fragment(request) and not is_table:
        if queries.is_untouched():
            return HttpResponseClientRefresh()
        is_approver = may_approve(request.user) or teams_of(request.user, Role.APPROVER)
        approver = request.user.get_username() if is_approver else ""
        operates = str(may_operate(request.user))
        return shared_fragment(
            request,
            ((request.path, version, _by(request), str(_has_fleet(request, version)), operates, approver)),
            lambda: _overview(request, version),
        )
    return _overview(request, version)


def _overview(request: HttpRequest, version: str) -> HttpResponse:
    fleet = {} if _has_fleet(request, version) else _fleet(request)
    if fleet and not fleet["charts"] and queries.is_untouched():
        return render_page(request, "dashboard/empty.html", {"sizes": DEMO_SIZES})
    table = asked_table(request, fleet.get("charts", ()))
    if table:
        return table
    counts, under_way, waiting = queries.counts(), counts_of(request).rollouts, waiting_count()
    is_large = counts.clusters > MANY_CLUSTERS
    approvals, approvals_count = first_waiting(most=queries.MOST)
    stale, stale_count = stale_placements(most=queries.MOST)
    short = queries.short_placements() if counts.unfulfilled else []
    invalid = list(queries.invalid_placements()) if counts.invalid else []
    rollouts = needs_attention()
    listed = {one.placement.full_name for one in short} | {one.name for one in invalid}
    listed |= {one.placement for one in rollouts if one.kind != "suspended"}
    ineligible, leaving = ([], []) if is_large else queries.clusters_in_need()
    context = {
        "version": version,
        "is_news": wants_fragment(request),
        **fleet,
        "counts": counts,
        "tiles": _tiles(counts, under_way, waiting, approvals_count),
        "runs": under_way,
        "is_calm": under_way == waiting and not counts.pending,
        "most": queries.MOST,
        "approvals": [waiting_for(one, current_user(request)) for one in approvals],
        "approvals_count": approvals_count,
        "short": short,
        "invalid": invalid,
        "listed": len(listed),
        "stale": stale,
        "stale_count": stale_count,
        "rollouts": rollouts,
        "faulty": queries.faulty_records(),
        **_disagreements(),
        "is_large": is_large,
        "ineligible_counts": ineligible_counts() if is_large else [],
        "ineligible": ineligible,
        "leaving": leaving,
        "decisions": queries.last_decisions(),
        "placements": [tight_row(one) for one in least_headroom()],
        **overview_card(counts.report),
    }
    return render_page(request, "dashboard/overview.html", context, fragment="dashboard/_events.html")


def _disagreements() -> dict[str, Any]:
    """Return the placements on whose decisions the replay and the live hub disagree."""
    if current_hub_id() == LOCAL_HUB:
        return {}
    rows = disagreements()
    found = list(rows.order_by("placement_name")[: queries.MOST])
    count = rows.count() if len(found) == queries.MOST else len(found)
    return {"disagreements": found, "disagreements_count": count}


def _by(request: HttpRequest) -> str:
    return request.GET.get("by", "").strip()


def _has_fleet(request: HttpRequest, version: str) -> bool:
    shown = request.GET.get("v", "").split("-")[:_VERSIONS_OF_FLEET]
    return wants_fragment(request) and shown == version.split("-")[:_VERSIONS_OF_FLEET]


def _fleet(request: HttpRequest) -> dict[str, Any]:
    """Return the fleet chart and the labels that it can be grouped by."""
    keys = [key for key, _ in label_keys()]
    by = _by(request) or favourite_key(keys)
    members = members_by(by)
    chart = waffle_chart(by, members)
    charts = [replace(chart, leads=_leads(by, members, chart))] if chart else []
    return {"charts": charts, "by": by, "keys": keys[:_KEYS_SHOWN], "has_fleet": True}


def _leads(by: str, members: Mapping[str | None, Members], chart: Chart) -> Leads:
    """Return the links of the cells: to one cluster, or in a large fleet to a filtered list."""
    is_large = sum(map(len, members.values())) > OPENED_UP_TO
    page = reverse("web:clusters")
    labels = [quote(label_filter(by, value), safe=":") for value in members]
    present = {state for clusters in members.values() for _, state in clusters}
    states = ["", "", *(f"&state={state_filter(one)}" for one in STATES if one in present)]
    cells = tuple(
        tuple(
            f"{page}?label={label}{state}" if count else "" for state, count in zip(states, row, strict=True)
        )
        for label, row in zip(labels, chart.rows, strict=True)
    )
    return Leads(f"{page}?label={{y}}&state={{z}}" if is_large else f"{page}{{customdata}}/", cells)
