"""The overview: totals, what needs attention, the placements with the least headroom, recent decisions."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from fleetui.apimachinery.model import Semantics
from fleetui.htmx import render_page, wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import Role, current_user, for_readers, may_approve, may_operate, teams_of
from fleetui.polling import TOKEN, polled, read_version_again, shared_fragment
from placements.engine.status import HealthLevel
from placements.explain.vocabulary import measure_word
from placements.models import Placement
from placements.services.dashboard import queries
from placements.services.dashboard.causes import Attention, Snooze, attention, snoozes_from
from placements.services.dashboard.queries import PlacementHeadroom, least_headroom
from placements.services.dashboard.trend import FleetTrend, fleet_trend
from placements.services.demo.load import DEMO_SIZES
from placements.services.fleet.queries import Skew
from placements.services.problems.book import bring_up_to_date
from placements.templatetags.fleet import address
from placements.web import badges
from placements.web.fleet_map import MAP_FIELDS, kept_map_context
from placements.web.layout import counts_of
from placements.web.what_if import overview_card


@dataclass(frozen=True, slots=True)
class HeadroomRow:
    """One placement with its headroom and its rollout; `measure` is the word for its limits."""

    placement: Placement
    picked: str
    state: badges.Badge
    skews: list[tuple[Skew, badges.Badge]]
    measure: str
    run: badges.Badge | None
    run_url: str
    run_number: int | None
    """The number of the rollout; None for a staged update run."""
    staged_name: str


def headroom_row(headroom: PlacementHeadroom) -> HeadroomRow:
    placement, run, staged = headroom.placement, headroom.run, headroom.staged
    shown: tuple[badges.Badge | None, str, int | None, str] = (None, "", None, "")
    if staged:
        url = address("web:staged-run", staged.full_name)
        shown = badges.staged_state(staged), url, None, staged.full_name
    elif run:
        url = address("web:rollout", placement.full_name, run.number)
        shown = badges.run_state(run), url, run.number, ""
    return HeadroomRow(
        placement,
        badges.picked_of(placement, headroom.health.counts),
        badges.placement_state(headroom.health),
        skew_badges(headroom.skews),
        measure_word(Semantics(placement.semantics)),
        *shown,
    )


def skew_badges(skews: Iterable[Skew]) -> list[tuple[Skew, badges.Badge]]:
    """Return each skew with its limit; one above it needs attention."""
    kinds = ((one, "attention" if one.skew > one.most else "healthy") for one in skews)
    return [(one, badges.Badge(kind, f"{one.key} {one.skew} / {one.most}")) for one, kind in kinds]


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
    good: int | None = None
    """How many of the total are as they should be, for a bar."""
    word: str = ""
    trend: FleetTrend | None = None

    @property
    def level(self) -> str:
        levels = {part.level for part in self.parts}
        order = (one.value for one in HealthLevel if one.value in levels)
        return next(order, HealthLevel.HEALTHY if self.total else HealthLevel.SUSPENDED)


def _tiles(
    counts: queries.Counts, runs: int, failing: int, items: Attention, trend: FleetTrend | None
) -> list[Tile]:
    clusters, placements, rollouts = (
        reverse(f"web:{name}") for name in ("clusters", "placements", "rollouts")
    )
    of_clusters = (
        ("failed", counts.not_eligible, "not ready", f"{clusters}?state=not-eligible"),
        ("attention", counts.late, "heartbeat late", f"{clusters}?state=heartbeat-late"),
        ("attention", counts.unhealthy, "unhealthy", f"{clusters}?state=unhealthy"),
        (
            "attention",
            counts.workloads_failing,
            "with failing workloads",
            f"{clusters}?state=workloads-failing",
        ),
        ("unknown", counts.not_observed, "not observed", f"{clusters}?state=not-observed"),
        ("attention", counts.cordoned, "cordoned", f"{clusters}?state=cordoned"),
        ("progress", counts.leaving, "leaving", f"{clusters}?state=leaving"),
        ("unknown", counts.not_monitored, "not monitored", f"{clusters}?state=not-monitored"),
    )
    # A placement that is not fulfilled is degraded or failed too.
    sound = counts.placements - counts.degraded
    degraded = counts.degraded if counts.degraded > counts.unfulfilled + counts.invalid else 0
    unfulfilled = f"{'of them ' if degraded else ''}not fulfilled"
    worst = "failed" if items.has_failed else "attention"
    of_placements = (
        ("failed", counts.invalid, "with invalid selectors", f"{placements}?state=invalid"),
        (worst, degraded, "degraded or failed", f"{placements}?state=degraded"),
        ("attention", counts.unfulfilled, unfulfilled, f"{placements}?state=unfulfilled"),
        ("unknown", counts.broken, "with broken assertions", f"{placements}?state=assertion-broken"),
        ("progress", counts.pending, "scheduling", f"{placements}?state=pending"),
    )
    of_rollouts = (
        ("failed", failing, "with failed clusters", f"{rollouts}?state=failed"),
        ("attention", counts.of_placements.waiting, "stalled or waiting for a user", rollouts),
        ("attention", items.approvals, "of them pending approval", f"{rollouts}?waiting=approval"),
    )

    def parts(entries: Iterable[tuple[str, int, str, str]]) -> list[TilePart]:
        return [TilePart(level, f"{count:,} {words}", url) for level, count, words, url in entries if count]

    return [
        Tile("Clusters", clusters, counts.clusters, parts(of_clusters), counts.ready, "ready", trend),
        Tile("Placements", placements, counts.placements, parts(of_placements), sound, "without problems"),
        Tile("Rollouts in progress", rollouts, runs, parts(of_rollouts)),
    ]


@for_readers
@require_safe
@polled
def overview(request: HttpRequest) -> HttpResponse:
    """Show the overview, which the page polls; on an empty hub the first steps."""
    if bring_up_to_date(now=datetime.now(UTC)):
        read_version_again(request)
    if wants_fragment(request):
        if queries.is_untouched():
            return HttpResponseClientRefresh()
        is_approver = may_approve(request.user) or teams_of(request.user, Role.APPROVER)
        approver = request.user.get_username() if is_approver else ""
        who = (may_operate(request.user), approver, str(_snoozes(request)))
        key = (request.path, *map(request.GET.get, (*MAP_FIELDS, "all", "fleet")), *who)
        return shared_fragment(request, key, lambda: _overview(request))
    return _overview(request)


def _overview(request: HttpRequest) -> HttpResponse:
    counts = queries.counts()
    mark = queries.fleet_mark(counts)
    has_map = wants_fragment(request) and request.GET.get("fleet") == mark
    fleet = {} if has_map else kept_map_context(request, mark)
    if fleet and not fleet["domains"] and queries.is_untouched():
        return render_page(request, "dashboard/empty.html", {"sizes": DEMO_SIZES})
    under_way = counts_of(request).rollouts
    failing = queries.failing_count() if under_way else 0
    now = datetime.now(UTC)
    items = attention(counts, current_user(request), snoozes=_snoozes(request), now=now)
    not_ready = counts.not_eligible + counts.leaving
    trend = fleet_trend(clusters=counts.clusters, not_ready=not_ready, now=now)
    decisions = queries.last_decisions()
    last = decisions[0].pk if decisions else 0
    context = {
        "fleet_mark": mark,
        "is_news": wants_fragment(request),
        **fleet,
        "counts": counts,
        "sizes": DEMO_SIZES,
        "tiles": _tiles(counts, under_way, failing, items, trend),
        "runs": under_way,
        "is_calm": under_way == counts.of_placements.waiting and not counts.pending,
        "attention": items,
        "snooze_for": SNOOZE_FOR,
        "decisions": decisions,
        "placements": [headroom_row(one) for one in least_headroom()],
        **overview_card(counts.of_placements.report, f"{mark}-{last}"),
    }
    if wants_fragment(request):
        context["csrf_token"] = TOKEN  # the fragment is shared by sessions
    return render_page(request, "dashboard/overview.html", context, fragment="dashboard/_events.html")


SNOOZE_FOR = {"1h": ("1 hour", 3600), "8h": ("8 hours", 8 * 3600), "change": ("Until it changes", None)}
"""How long a cause can be hidden from a person, in seconds; None: until it changes."""
_SNOOZED, _MOST_SNOOZED = "snoozed", 100


@for_readers
@require_POST
def snooze(request: HttpRequest) -> HttpResponse:
    """Hide a cause of the overview in this session, or show it again; other people see it."""
    key, mark, wanted = (request.POST.get(name, "")[:300] for name in ("key", "mark", "for"))
    if wanted not in ("", *SNOOZE_FOR):
        allowed = ", ".join(SNOOZE_FOR)
        return HttpResponseBadRequest(f"for: Unsupported value. Supported values: {allowed}", "text/plain")
    by_hub = request.session.get(_SNOOZED, {})
    hub = str(current_hub_id())
    kept = {one: value for one, value in by_hub.get(hub, {}).items() if one != key}
    if wanted:
        seconds, now = SNOOZE_FOR[wanted][1], time.time()
        kept[key] = [None if seconds is None else int(now) + seconds, mark]
    request.session[_SNOOZED] = {**by_hub, hub: dict(list(kept.items())[-_MOST_SNOOZED:])}
    return redirect("web:overview")


def _snoozes(request: HttpRequest) -> dict[str, Snooze]:
    return snoozes_from(request.session.get(_SNOOZED, {}).get(str(current_hub_id())))
