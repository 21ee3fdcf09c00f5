"""The overview: figures, map, causes, rollouts, placements; the inbox of all hubs."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe
from django_htmx.http import HttpResponseClientRefresh

from clusters.drivers.base import SIMULATED
from clusters.hub_queries import hubs_with_role
from clusters.models import MemberCluster
from clusters.operations.edit import faults_of
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted
from fleetui.htmx import render_page, wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import (
    Role,
    current_user,
    for_readers,
    may_approve,
    may_operate,
    teams_of,
)
from fleetui.polling import TOKEN, shared_fragment
from placements.engine.problems import Effect, Noun, ProblemLevel
from placements.engine.status import NEEDS_RUN
from placements.explain.run_pages import Part
from placements.explain.vocabulary import max_skew_words, measure_word
from placements.manifests.policy import PlacementType
from placements.models import Placement, ProblemKind, Run, RunKind
from placements.services.dashboard import queries
from placements.services.dashboard.causes import (
    AttentionItem,
    Snooze,
    attention,
    inbox_items,
    snoozes_from,
)
from placements.services.dashboard.pictures import Picture, pictures_of, scale_of
from placements.services.dashboard.progress import RunProgress, runs_in_progress
from placements.services.dashboard.queries import PlacementHeadroom
from placements.services.demo.load import DEMO_SIZES
from placements.services.filters import PlacementFilterState, decisions_of
from placements.services.fleet.queries import Skew, are_skews_known
from placements.services.problems.book import stored_problems
from placements.services.problems.root_causes import AttentionSection
from placements.templatetags.fleet import address, run_address
from placements.web import badges
from placements.web.fleet_map import MAP_FIELDS, kept_map_context
from placements.web.layout import counts_of, live_page
from placements.web.request import word_from


@dataclass(frozen=True, slots=True)
class FigurePart:
    """A part of a figure: its words, and its level where it is no good one."""

    words: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    number: int
    words: str
    parts: list[FigurePart]
    since: datetime | None = None
    """When what the only part says happened."""


@dataclass(frozen=True, slots=True)
class PlacementLine:
    """A placement of the overview: its status, its picture, and available clusters.

    `limit` is in words; `ends` are the fewest and the most clusters of a domain in words.
    """

    name: str
    state: badges.Badge
    picture: Picture
    limit: str
    ends: str
    available: int
    wanted: int


@dataclass(frozen=True, slots=True)
class RunLine:
    progress: RunProgress
    name: str
    url: str
    state: badges.Badge
    step: str

    @property
    def ticks(self) -> Sequence[Sequence[tuple[Part, int]]]:
        """The bar: for each wave or stage its parts with their widths."""
        groups = self.progress.groups
        if not self.progress.has_ticks:
            return groups
        return [
            [(part, 1) for part, count in group for _ in range(count)]
            for group in groups
        ]


def _parts(*entries: tuple[int, str, str]) -> list[FigurePart]:
    return [
        FigurePart(f"{count:,} {words}", level)
        for count, words, level in entries
        if count > 0
    ]


def figures_of(
    counts: queries.Counts,
    fleet: Mapping[str, Any],
    runs: int,
    items: Collection[AttentionItem],
) -> list[Figure]:
    """Return the figures; the parts of each do not overlap."""
    of_placements = counts.of_placements
    healthy = of_placements.by_state[PlacementFilterState.HEALTHY]
    pending = [item for item in items if item.kind == ProblemKind.APPROVAL_PENDING]
    not_paused = of_placements.waiting - of_placements.paused
    waiting = min(len({item.name for item in pending}), not_paused)
    quiet = of_placements.awaiting_approval, of_placements.suspended
    others = counts.placements - healthy - counts.degraded - sum(quiet)
    not_ready = [one for one in fleet["legend"] if one.kind != "healthy"]
    domains = (
        f"{counted(fleet['domains'], 'domain')} by {fleet['by']}" if fleet["by"] else ""
    )
    of_clusters = [
        FigurePart(f"{one.count:,} {one.words}", "" if one.is_quiet else one.kind)
        for one in not_ready
    ]
    placement_parts = _parts(
        (counts.degraded, "with problems", "attention"),
        (counts.broken, "with broken assertions", "attention"),
        (of_placements.awaiting_approval, "waiting for approval", ""),
        (others, "in progress", ""),
        (of_placements.suspended, "paused or pending", ""),
    )
    run_parts = _parts(
        (runs - of_placements.waiting, "progressing", "progress"),
        (not_paused - waiting, "stalled", "attention"),
        (of_placements.paused, "paused", ""),
        (waiting, "waiting for approval", ""),
    )
    last_end = None if runs else queries.last_rollout_end()
    # Such as "edge-cache-1, stage canary".
    approvals = [
        FigurePart(item.title.replace(": approve", ",")) for item in pending[:1]
    ]
    needing = sum(item.reason == NEEDS_RUN for item in items)
    quiet_words = "no staged run waits"
    if needing:
        verb = "needs" if needing == 1 else "need"
        quiet_words = f"{counted(needing, 'placement')} {verb} a staged run"
    approval_words = "approval pending" if len(pending) == 1 else "approvals pending"
    run_words = "rollout in progress" if runs == 1 else "rollouts in progress"
    return [
        Figure(
            counts.ready,
            f"of {counted(counts.clusters, 'cluster')} ready",
            of_clusters or ([FigurePart(domains)] if domains else []),
        ),
        Figure(
            healthy,
            f"of {counted(counts.placements, 'placement')} healthy",
            placement_parts,
        ),
        Figure(runs, run_words, run_parts or [FigurePart("none ended yet")], last_end),
        Figure(
            len(pending),
            approval_words,
            approvals or [FigurePart(quiet_words)],
        ),
    ]


def placement_line(
    headroom: PlacementHeadroom, picture: Picture, clusters: int
) -> PlacementLine:
    placement, counts = headroom.placement, headroom.health.counts
    limit = _NO_LIMIT[PlacementType(placement.placement_type)]
    if headroom.skews:
        worst = min(headroom.skews, key=lambda one: one.most - one.skew)
        measure = measure_word(Semantics(placement.semantics)).lower()
        most = max_skew_words(worst.most, hard=worst.is_hard)
        limit = f"{worst.key} {measure} {worst.skew} ({most})"
    elif placement.placement_type == PlacementType.PICK_N and not are_skews_known(
        placement
    ):
        limit = "skew pending"
    elif (
        placement.placement_type == PlacementType.PICK_ALL
        and counts.scheduled < clusters
    ):
        limit = "all that match"
    return PlacementLine(
        placement.full_name,
        badges.placement_state(headroom.health),
        picture,
        limit,
        picture.range_words,
        counts.available,
        max(counts.wanted, counts.scheduled),
    )


_NO_LIMIT = {
    PlacementType.PICK_ALL: "all clusters",
    PlacementType.PICK_N: "no spread",
    PlacementType.PICK_FIXED: "named clusters",
}


def run_line(progress: RunProgress) -> RunLine:
    run = progress.run
    state = badges.run_state(run)
    step = "stage" if run.kind == RunKind.STAGED else "wave"
    is_numbered = (
        progress.current is not None
        and len(progress.groups) > 1
        and state.kind != badges.APPROVAL
    )
    words = (
        f"{step} {progress.current} of {len(progress.groups)}" if is_numbered else ""
    )
    return RunLine(progress, run.placement_name, run_address(run), state, words)


_ADVICE_ROWS = 3
"""More advice than this is one row while all sections are shown."""


def rows_of(
    items: Sequence[AttentionItem], *, most: int, url: str
) -> tuple[list[AttentionItem], int]:
    """Return the first items, and how many are left out.

    More advice than three items is one row, with a link to all of it.
    """
    others = [item for item in items if item.section is not AttentionSection.ADVICE]
    advice = [item for item in items if item.section is AttentionSection.ADVICE]
    if not advice or (len(advice) <= _ADVICE_ROWS and len(items) <= most):
        return list(items[:most]), max(0, len(items) - most)
    left = max(0, len(others) - most + 1)
    if len(advice) == 1:
        return [*others[: most - 1], *advice], left
    facts = ("advice", ProblemLevel.OUTDATED, "", Noun.CLUSTER, "", "", url)
    title = f"Advice on {counted(len(advice), 'point')}"
    lines = [item.title for item in advice[:_ADVICE_ROWS]]
    if len(advice) > len(lines):
        lines.append(f"{len(advice) - len(lines):,} more")
    effects = tuple(Effect(line, url) for line in lines)
    summary = AttentionItem(
        *facts, effects=effects, title=title, section=AttentionSection.ADVICE
    )
    return [*others[: most - 1], summary], left


def approval_url(item: AttentionItem) -> str:
    run, stage, _ = item.key.removeprefix(f"{ProblemKind.APPROVAL_PENDING}/").rsplit(
        "/", 2
    )
    return address("web:staged-run-approve", run, stage)


@dataclass(frozen=True, slots=True)
class HeadroomRow:
    """One placement with its headroom and its rollout; `measure` is the word for its limits."""

    placement: Placement
    picked: str
    state: badges.Badge
    skews: list[tuple[Skew, badges.Badge]]
    measure: str
    run: Run | None
    run_state: badges.Badge | None
    run_url: str


def headroom_row(headroom: PlacementHeadroom) -> HeadroomRow:
    placement, run = headroom.placement, headroom.run
    return HeadroomRow(
        placement,
        badges.picked_of(placement, headroom.health.counts),
        badges.placement_state(headroom.health),
        skew_badges(headroom.skews),
        measure_word(Semantics(placement.semantics)),
        run,
        badges.run_state(run) if run else None,
        run_address(run) if run else "",
    )


def skew_badges(skews: Iterable[Skew]) -> list[tuple[Skew, badges.Badge]]:
    """Return each skew with its limit; one above a hard limit needs attention, a soft one may be exceeded."""
    above = {True: "attention", False: "advice"}
    return [
        (
            skew,
            badges.Badge(
                above[skew.is_hard] if skew.skew > skew.most else "healthy",
                f"{skew.key} {skew.skew} / {skew.most}",
            ),
        )
        for skew in skews
    ]


MOST_CONTROLS = 35
"""So many links and buttons the content of the overview has at most, the map being one."""
_MOST_ITEMS, _MOST_RUNS, _MOST_DECISIONS, _FEWEST_PLACEMENTS, _MOST_PLACEMENTS = (
    6,
    4,
    4,
    5,
    10,
)
_OF_REST = 11
"""Controls of the map, its menus and its link, of the filters, the links to whole lists and *Apply YAML*."""
_FEWEST_DECISIONS = 2
FILTERS = {
    AttentionSection.APPROVE: "Approve",
    AttentionSection.BROKEN: "Broken",
    AttentionSection.ADVICE: "Advice",
}


@for_readers
@require_safe
@live_page
def overview(request: HttpRequest) -> HttpResponse:
    """Show the overview, which the page polls; on an empty hub the first steps."""
    if wants_fragment(request):
        if queries.is_untouched():
            return HttpResponseClientRefresh()
        approver = request.user.get_username() if may_approve_somewhere(request) else ""
        who = (may_operate(request.user), approver, str(_snoozes(request)))
        key = (
            request.path,
            *map(request.GET.get, (*MAP_FIELDS, "show", "fleet")),
            *who,
        )
        return shared_fragment(request, key, lambda: _overview(request))
    return _overview(request)


def _overview(request: HttpRequest) -> HttpResponse:
    navigation = counts_of(request)
    most = min(_MOST_RUNS, navigation.rollouts)
    newest = runs_in_progress(most, now=datetime.now(UTC))
    if len(newest) < most:
        # Rollouts ended since the last comparison: all figures are of one moment.
        navigation = counts_of(request, is_outdated=True)
    runs = list(map(run_line, newest))
    counts = queries.counts(navigation.totals, version=navigation.version)
    decisions = list(decisions_of().order_by("-id")[:_MOST_DECISIONS])
    mark = queries.fleet_mark(counts, decisions)
    fleet = kept_map_context(request, mark)
    if not counts.clusters and queries.is_untouched():
        return render_page(request, "dashboard/empty.html", {"sizes": DEMO_SIZES})

    causes = _causes_context(request, fleet["by"], navigation.totals)
    lists = (
        causes["more_items"],
        causes["attention"].snoozed,
        len(runs) < navigation.rollouts,
        causes["approval_url"],
        navigation.has_live_hubs,
    )
    of_rows = (
        1 + (row.section is not AttentionSection.ADVICE) for row in causes["rows"]
    )
    used = _OF_REST + sum(map(bool, lists)) + len(runs) + sum(of_rows)
    is_short = len(causes["rows"]) <= _MOST_DECISIONS and len(runs) <= 2
    most_decisions = _MOST_DECISIONS if is_short else _FEWEST_DECISIONS
    room = max(0, MOST_CONTROLS - used - _FEWEST_PLACEMENTS)
    # Decisions of a demo are dated back.
    decisions = sorted(decisions, key=lambda one: one.created_at, reverse=True)[
        : min(room, most_decisions)
    ]
    left = MOST_CONTROLS - used - len(decisions)
    most = min(_MOST_PLACEMENTS, max(_FEWEST_PLACEMENTS, left))
    several = queries.worst_placements(most)
    pictures = pictures_of(several, fleet["by"], version=mark)
    is_news = wants_fragment(request)
    context = {
        "fleet_mark": mark,
        "is_news": is_news,
        "has_fleet": not (is_news and request.GET.get("fleet") == mark),
        **fleet,
        **causes,
        "counts": counts,
        "sizes": DEMO_SIZES,
        "figures": figures_of(
            counts, fleet, navigation.rollouts, causes["attention"].items
        ),
        "runs": runs,
        "navigation": navigation,
        "is_calm": navigation.rollouts == counts.of_placements.waiting
        and not counts.pending,
        "decisions": decisions,
        "scale": scale_of(pictures.values()),
        "placements": [
            placement_line(headroom, pictures[headroom.placement.pk], counts.clusters)
            for headroom in several
        ],
    }
    if is_news:
        context["csrf_token"] = TOKEN  # the fragment is shared by sessions
    return render_page(
        request, "dashboard/overview.html", context, fragment="dashboard/_events.html"
    )


def _causes_context(
    request: HttpRequest, by: str, totals: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what needs attention: the rows of the chosen section, and which of them can be approved."""
    found = attention(
        current_user(request),
        snoozes=_snoozes(request),
        now=datetime.now(UTC),
        key=by,
        problems=stored_problems(),
        totals=totals,
    )
    section = word_from(request, "show", AttentionSection)
    rows, more = rows_of(
        found.in_section(section),
        most=_MOST_ITEMS,
        url="" if section else "?show=advice",
    )
    approval = next(
        (row for row in rows if row.kind == ProblemKind.APPROVAL_PENDING), None
    )
    may_approve_it = approval and may_approve_somewhere(request)
    named = [row.cluster for row in rows if row.cluster]
    simulated = MemberCluster.objects.filter(name__in=named, driver=SIMULATED)
    return {
        "attention": found,
        "section": section,
        "filters": [
            (
                attention_section,
                FILTERS[attention_section],
                found.counts[attention_section],
            )
            for attention_section in AttentionSection
        ],
        "rows": rows,
        "more_items": more,
        "to_approve": approval.key if approval and may_approve_it else "",
        "approval_url": approval_url(approval) if approval else "",
        "snooze_for": SNOOZE_FOR,
        "faulty": {cluster.name for cluster in simulated if faults_of(cluster)},
    }


def may_approve_somewhere(request: HttpRequest) -> bool:
    return may_approve(request.user) or bool(teams_of(request.user, Role.APPROVER))


SNOOZE_FOR = {
    "1h": ("1 hour", 3600),
    "8h": ("8 hours", 8 * 3600),
    "change": ("Until it changes", None),
}
"""How long a cause can be hidden from a person, in seconds; None: until it changes."""
_SNOOZED, _MOST_SNOOZED = "snoozed", 100


@for_readers
@require_POST
def snooze(request: HttpRequest) -> HttpResponse:
    """Hide a cause of the overview in this session, or show it again; other people see it."""
    key, mark, wanted = (
        request.POST.get(name, "")[:300] for name in ("key", "mark", "for")
    )
    if wanted not in ("", *SNOOZE_FOR):
        allowed = ", ".join(SNOOZE_FOR)
        return HttpResponseBadRequest(
            f"for: Unsupported value. Supported values: {allowed}", "text/plain"
        )
    by_hub = request.session.get(_SNOOZED, {})
    hub = str(current_hub_id())
    kept = {one: value for one, value in by_hub.get(hub, {}).items() if one != key}
    if wanted:
        seconds, now = SNOOZE_FOR[wanted][1], time.time()
        kept[key] = [None if seconds is None else int(now) + seconds, mark]
    request.session[_SNOOZED] = {
        **by_hub,
        hub: dict(list(kept.items())[-_MOST_SNOOZED:]),
    }
    return redirect("web:overview")


def _snoozes(request: HttpRequest) -> dict[str, Snooze]:
    return snoozes_from(request.session.get(_SNOOZED, {}).get(str(current_hub_id())))


MOST_SHOWN = 200


@for_readers
@require_safe
def show_inbox(request: HttpRequest) -> HttpResponse:
    """Show the items, of one hub or section if the address names it."""
    hub, section = (
        request.GET.get("hub", "").strip(),
        word_from(request, "show", AttentionSection),
    )
    found = inbox_items(request.user, now=datetime.now(UTC), hub=hub)
    items = found.in_section(section)
    return render_page(
        request,
        "inbox/inbox.html",
        {
            "attention": found,
            "filters": [
                (
                    attention_section,
                    FILTERS[attention_section],
                    found.counts[attention_section],
                )
                for attention_section in AttentionSection
            ],
            "section": section,
            "rows": items[:MOST_SHOWN],
            "more_items": max(0, len(items) - MOST_SHOWN),
            "hub": hub,
            "hubs": list(
                hubs_with_role(request.user)
                .order_by("name")
                .values_list("name", flat=True)
            ),
        },
        fragment="inbox/_list.html",
    )
