"""Placements: the list, one of them, its manifest to download, deleting it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Exists, QuerySet, Window
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics
from fleetui.apimachinery.words import counted, joined
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page, wants_fragment
from fleetui.permissions import for_operators, for_readers, may_change
from fleetui.prepared import PreparedQuery
from placements.engine.limits import limit_words
from placements.engine.status import NEEDS_RUN, HealthLevel, PlacementHealth
from placements.explain.advice import OUTDATED, change_words
from placements.explain.checks import LEVEL
from placements.explain.lanes import legend_of
from placements.explain.loss import loss_name
from placements.explain.moves import NO_BETTER_SET
from placements.explain.rollouts import (
    wave_counts,
)
from placements.explain.vocabulary import headline, policy_sentence
from placements.manifests.binding import BindingState
from placements.manifests.placement import OcmPlacement, parse_placement
from placements.manifests.policy import PlacementType
from placements.models import (
    CHANGES_CLUSTERS,
    Binding,
    Decision,
    Placement,
    Rollout,
    StagedRun,
)
from placements.services.actions import ACTIONS, ActionKind, Reasons
from placements.services.assertions import check_of
from placements.services.checks import counts_of, has_older_findings
from placements.services.dashboard.queries import headroom_of
from placements.services.decisions.records import (
    DecisionView,
    decision_of,
    fixes_of,
    last_steps,
    latest_decision,
    panels_of,
    problems_of,
    ranking_decision,
)
from placements.services.editor.operations import (
    drafts_of,
    own_drafts,
    summaries_of,
)
from placements.services.filters import (
    LIST_FILTERS,
    PLACEMENT_ORDERS,
    PlacementFilter,
    PlacementFilterState,
    PlacementTotals,
    counts_in_all,
    events_matching,
    latest_decisions,
    placement_filter,
    placements_matching,
)
from placements.services.fleet.queries import (
    MOST_NAMES,
    Stale,
    skews_of,
    stale_picks_of,
    with_outdated,
)
from placements.services.health import (
    cluster_problems,
    exceeded_of,
    health_of,
    with_rollouts,
)
from placements.services.history.queries import with_revision
from placements.services.loss.queries import (
    current_resilience,
    is_outdated,
    levels_in,
    with_fleet_version,
)
from placements.services.placements import delete_placement
from placements.services.rollouts.queries import (
    failed_and_waiting,
    latest_run,
    progress_words,
    result_in,
    sentences_of,
    waits_for_run,
    with_status,
)
from placements.services.status import manifest_of, scheduled_condition
from placements.services.teams import labels_in, of_placement
from placements.templatetags.fleet import address, offered, state_words
from placements.web import badges
from placements.web.activity import event_rows, url_of
from placements.web.dashboard import HeadroomRow, headroom_row, skew_badges
from placements.web.filter_bar import (
    Facet,
    FilterBar,
    filter_bar,
    plain_choices,
    read_filters,
)
from placements.web.layout import counts_of as navigation_of
from placements.web.layout import live_page
from placements.web.outcomes import (
    ClusterFacet,
    placed_by_domain,
    placement_clusters,
)
from placements.web.request import (
    actor,
    as_file,
    order_from,
    page_from,
    pager_of,
    redirect_after,
    unknown_words,
)
from placements.web.rollouts import run_rows

_BEFORE_CHANGE = " (before the last change)"
_REVISIONS_SHOWN = 10
_EVENTS_SHOWN = 15
_RESOURCES_SHOWN = 100
_CLUSTERS_SHOWN = 20
_FAILED_SHOWN = 8
_NAMES_OFFERED = 200
_DRAFTS_SHOWN = 5
_ACTIONS = {
    "edit": "Edit",
    "pause": "Pause",
    "resume": "Resume",
    "roll-back": "Roll back",
    "reschedule": "Reschedule",
    "history": "Revision history",
    "delete": "Delete",
}
_ORDERS = {
    "name": "Name",
    "-name": "Name, descending",
    "-updated_at": "Recently changed",
    "-created_at": "Recently created",
    "-placed_count": "Most clusters",
    "placed_count": "Fewest clusters",
}


@dataclass(frozen=True, slots=True)
class PlacementListRow:
    """One line of the list: the status of a placement, its last decision, and its latest run."""

    placement: Placement
    health: PlacementHealth
    limits: HeadroomRow
    decision: Decision | None
    actions: Mapping[str, str]
    """The pages that the hub has, with their words."""

    @property
    def page(self) -> str:
        return address("web:placement", self.placement.full_name)

    @property
    def menu(self) -> list[tuple[str, str]]:
        """Return the addresses of the actions that the placement has now, with their words."""
        hidden = {"resume" if self.placement.paused_since is None else "pause"}
        if self.placement.is_staged:
            hidden.add("roll-back")
        if self.placement.deleting_since:
            hidden |= {"roll-back", "delete"}
        return [
            (f"{self.page}{one}/", words)
            for one, words in self.actions.items()
            if one not in hidden
        ]

    @property
    def findings(self) -> badges.Badge | None:
        check = counts_of(self.placement)
        if check is None or not check.severe:
            return None
        words = counted(check.total, "finding")
        if has_older_findings(self.placement):
            words += _BEFORE_CHANGE
        return badges.Badge(LEVEL, words)

    @property
    def status_bar(self) -> list[badges.Segment]:
        return badges.status_bar(self.placement, self.health, self.limits.run)

    @property
    def available(self) -> str:
        return f"{self.health.counts.available:,} of {self.health.counts.wanted:,}"

    @property
    def survives(self) -> str:
        """Return the levels of the resilience report whose losses the placement survives."""
        if (resilience := current_resilience(self.placement, self.health)) is None:
            return ""
        words = "Does not survive the loss of a cluster"
        if resilience.levels:
            words = f"Survives the loss of any {joined(resilience.levels, 'or')}"
        return words + _BEFORE_CHANGE if is_outdated(self.placement) else words


def placement_rows(placements: list[Placement]) -> list[PlacementListRow]:
    """Return the lines of these placements, each with its rollout and its last decision."""
    latest = latest_decisions(placements)
    actions = {
        one: words
        for one, words in _ACTIONS.items()
        if offered(address(f"web:placement-{one}", "-"))
    }
    return [
        PlacementListRow(
            headroom.placement,
            headroom.health,
            headroom_row(headroom),
            latest.get(headroom.placement.pk),
            actions,
        )
        for headroom in headroom_of(placements)
    ]


@for_readers
@require_safe
@live_page
def placements(request: HttpRequest) -> HttpResponse:
    """List the placements that match, a page at a time; the page polls it."""
    stored = navigation_of(request)
    poll = request.GET.copy()
    poll["v"] = request.version  # type: ignore[attr-defined]  # by `polled`
    filters = read_filters(
        request,
        "placements",
        state=list(PlacementFilterState),
        type=list(PlacementType),
        semantics=list(Semantics),
    )
    wanted = placement_filter(filters)
    rows, order = placements_matching(wanted), order_from(request, PLACEMENT_ORDERS)
    related = ("staleness_check", "resilience__report", "findings_check")
    listed = with_outdated(with_fleet_version(rows.select_related(*related)))
    page = page_from(request, listed, order=order, unique="full_name")
    counts = counts_in_all(stored.totals)
    count = rows.count()
    seen: dict[Any, int] = {None: counts.in_all, **counts.by_state}
    if count != seen[wanted.state] and wanted == PlacementFilter(state=wanted.state):
        # Placements were deleted since the last comparison: all figures are of one moment.
        counts = counts_in_all(navigation_of(request, is_outdated=True).totals)
    return render_page(
        request,
        "placements/list.html",
        {
            "poll": poll,
            "bar": _list_bar(request, wanted, counts, levels_in(page.rows)),
            "rows": placement_rows(page.rows),
            "changeable": {
                row.pk
                for row in page.rows
                if may_change(request.user, labels_in(row.document))
            },
            "pager": pager_of(
                request, len(page.rows), count, before=page.before, after=page.after
            ),
            "count": count,
            "namespaces": counts.namespaces,
            "default_rules": str(DEFAULT_SEMANTICS),
            "orders": _ORDERS,
            "order": order,
            "own_drafts": ()
            if wants_fragment(request)
            else summaries_of(own_drafts(request.user)[:_DRAFTS_SHOWN]),
        },
        fragment="placements/_list.html",
    )


def _list_bar(
    request: HttpRequest,
    wanted: PlacementFilter,
    counts: PlacementTotals,
    levels: Iterable[str],
) -> FilterBar:
    present = [
        (state, state_words(state), count)
        for state, count in counts.by_state.items()
        if count != 0 or state == wanted.state
    ]
    survived = sorted({*levels, wanted.survives} - {""})
    facets = [
        Facet("state", "Status", present, is_row=True),
        Facet("namespace", "Namespace", plain_choices(counts.namespaces)),
        Facet("type", "Type", plain_choices(PlacementType)),
        Facet("semantics", "Scheduling rules", plain_choices(Semantics)),
        Facet("survives", "Survives loss of", plain_choices(survived)),
    ]
    return filter_bar(
        request,
        LIST_FILTERS["placements"],
        facets,
        state=PlacementFilterState,
        type=PlacementType,
        semantics=Semantics,
        order=PLACEMENT_ORDERS,
    )


@for_readers
@require_safe
@live_page
def placement(request: HttpRequest, name: str, tab: str = "clusters") -> HttpResponse:
    """Show one tab of a placement; while it is being scheduled the page polls the part that changes."""
    row = next(iter(_with_status.rows(name=name)), None)
    if row is None:
        if wants_fragment(request):  # a page that waited for the end of a deletion
            return HttpResponseClientRedirect(reverse("web:placements"))
        raise Http404(f"No placement is named {name}.")
    latest = latest_decision(row)
    now = datetime.now(UTC)
    outdated = stale_picks_of(row)
    if tab == "clusters":
        context, health = _clusters_tab(request, row, latest, outdated, now=now)
    else:
        context, health = {}, health_of(row, now=now)
    run = latest_run(row)
    context |= head_context(row, latest, health, list(outdated), now=now, run=run)
    context["tab"] = tab
    if tab != "clusters":
        context |= _tab_context(request, row, tab, latest, run=run)
    if not wants_fragment(request):
        context["your_draft"] = drafts_of(request.user, row).first()
    return render_page(
        request, "placements/placement.html", context, fragment="placements/_live.html"
    )


@PreparedQuery
def _with_status(*, name: str) -> QuerySet[Any]:
    """Return a placement with all that its status, its revision and the results of its checks need."""
    rows = Placement.objects.filter(full_name=name).select_related(
        "staleness_check", "resilience__report", "assertion_check", "findings_check"
    )
    return with_rollouts(with_fleet_version(with_revision(rows)))


def head_context(
    placement: Any,
    latest: Decision | None,
    health: PlacementHealth,
    outdated: list[str],
    *,
    now: datetime,
    run: Rollout | None,
) -> dict[str, Any]:
    """Return what all tabs show: the status, the strip of values, what is wrong, and the actions.

    `run` is the latest rollout.
    """
    stale = (placement.full_name, tuple(outdated[:MOST_NAMES]), len(outdated))
    manifest = parse_placement(placement.document)
    is_short = latest is not None and health.condition in (
        "Not fulfilled",
        "Partially fulfilled",
    )
    problems = problems_of(latest) if is_short and latest else ()
    exact = DecisionView(latest).exact if problems and latest else None
    exceeded = exceeded_of(placement)
    context = {
        **_strip_context(placement, health, run),
        "outdated": [Stale(*stale, placement.staleness_check.checked_at)]
        if outdated
        else [],
        "has_better_set": exact is not None and exact.has_better_set,
        "assertions": check_of(placement),
        "exceeded": exceeded,
        "balance": "; ".join(map(limit_words, exceeded)),
        "no_better_set": NO_BETTER_SET,
        "decision": latest,
        "problems": cluster_problems(placement, now=now)
        if health.level != HealthLevel.HEALTHY
        else [],
        "traps": [problem for problem in problems if not problem.startswith(OUTDATED)],
        "may_reschedule": not ACTIONS[ActionKind.ROLLING, "reschedule"].why_not(
            placement, None
        ),
        "sentence": policy_sentence(
            manifest.spec.policy, manifest.semantics, manifest.spread_options
        ),
        "ocm": manifest if isinstance(manifest, OcmPlacement) else None,
        "selectors": manifest.spec.resource_selectors,
    }
    issues = _issue_words(context)
    is_unexplained = health.is_degraded and not issues
    issues = issues or [health.message] * is_unexplained
    words = counted(len(issues), "problem")
    if len(issues) == len(context["outdated"]):  # it changes no health
        words = f"{len(issues):,} advice"
    return context | {
        "issues": issues,
        "issues_words": words,
        "is_unexplained": is_unexplained,
    }


def _issue_words(context: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a placement, a few words for each root cause."""
    words = ["invalid selector" for _ in context["placement"].selection_faults]
    for problem in context["problems"]:
        names = ", ".join(problem.names)
        if problem.count > len(problem.names):
            names += f" and {problem.count - len(problem.names):,} more"
        words.append(f"{names}: {problem.status.word.lower()}")
    words += ["not fulfilled" for _ in context["traps"][:1]]
    words += [f"failed on {name}" for name in context.get("staged_failed", ())]
    words += [
        f"out of balance: {one.topology_key} {one.skew} / {one.max_skew}"
        for one in context["exceeded"]
    ]
    words += [
        f"outdated: {counted(one.count, 'cluster')}" for one in context["outdated"]
    ]
    return words


def _strip_context(
    placement: Any, health: PlacementHealth, run: Rollout | None
) -> dict[str, Any]:
    is_deleting = placement.deleting_since is not None
    is_waiting = placement.is_due or placement.needs_sync or is_deleting
    is_suspended = placement.paused_since is not None or placement.is_stopped
    staged = _staged_context(placement) if placement.is_staged else {}
    needs_run = bool(staged.get("staged_waits")) or health.detail == NEEDS_RUN
    return {
        "placement": placement,
        "health": health,
        "status_bar": badges.status_bar(
            placement, health, staged.get("staged_run", run)
        ),
        "picked": badges.picked_of(placement, health.counts),
        "skews": skew_badges(skews_of(placement)),
        "is_waiting": is_waiting,
        "is_rollout_pending": is_waiting and not is_suspended,
        "needs_run": needs_run,
        "is_resting": is_suspended or is_deleting or needs_run,
        **staged,
        "run": run,
        "is_running": run is not None and run.state == Rollout.State.RUNNING,
        "why_not": Reasons(ActionKind.ROLLING, placement, stop=run),
        "run_state": badges.run_state(run) if run else None,
    }


def _clusters_tab(
    request: HttpRequest,
    placement: Any,
    latest: Decision | None,
    outdated: Mapping[str, str],
    *,
    now: datetime,
) -> tuple[dict[str, Any], PlacementHealth]:
    """Return the first tab: the domains, the last steps and the clusters; and the status."""
    decision = ranking_decision(placement, latest)
    # The reasons may come from a decision under an older policy, the limits may not.
    is_of_policy = _is_of_policy(decision, latest)
    under_policy = decision if is_of_policy else latest
    health = health_of(placement, now=now)
    panels = panels_of(under_policy) if under_policy else ()
    skews = {skew.key: skew.skew for skew in skews_of(placement)}
    counts = health.counts
    differ = [
        panel.key for panel in panels if skews.get(panel.key, panel.skew) != panel.skew
    ]
    no_problem = counts.available + counts.pending + counts.in_flight
    return {
        "clusters": placement_clusters(
            request,
            placement,
            decision,
            outdated,
            problems=max(0, counts.scheduled - no_problem),
            now=now,
        ),
        "panels": [(f"placed-{place}", [panel]) for place, panel in enumerate(panels)],
        "placed_today": placed_by_domain(placement, differ),
        "legend": legend_of(panels),
        "steps": last_steps(decision) if decision else None,
        "under_policy": under_policy,
        "ranking": decision,
        "is_of_policy": is_of_policy,
        "unknown": unknown_words(request, outcome=ClusterFacet),
        "resilience": (resilience := current_resilience(placement, health)),
        "resilience_outdated": resilience and is_outdated(placement),
        "weakest_loss": loss_name(resilience.weakest_level, resilience.weakest_value)
        if resilience
        else "",
        "findings": counts_of(placement),
        "findings_outdated": has_older_findings(placement),
    }, health


def _is_of_policy(decision: Decision | None, latest: Decision | None) -> bool:
    return (
        decision is None
        or latest is None
        or decision.policy_number == latest.policy_number
    )


def _tab_context(
    request: HttpRequest,
    placement: Any,
    tab: str,
    latest: Decision | None,
    *,
    run: Rollout | None,
) -> dict[str, Any]:
    if tab == "decision":
        return _decision_tab(request, placement, latest)
    if tab == "manifest":
        return {"manifest": dump_yaml(placement.document)}
    if tab != "rollouts":
        return _resources_tab(placement)
    events = events_matching(kind="placement", name=placement.full_name).order_by(
        "-at", "-id"
    )
    return {
        "progress": progress_words(run) if run else "",
        "waves": wave_counts(run.waves) if run else "",
        "runs": run_rows(placement, most=_REVISIONS_SHOWN),
        "events": event_rows(events[:_EVENTS_SHOWN]),
    }


def _decision_tab(
    request: HttpRequest, placement: Any, latest: Decision | None
) -> dict[str, Any]:
    """Return the decision that selected the clusters, and how many later ones changed nothing."""
    ranking = ranking_decision(placement, latest)
    rows = placement.decisions.select_related("record")
    context = {
        "has_all": request.GET.get("unchanged") == "1",
        "condition": scheduled_condition(placement, latest),
        "ranking": ranking,
        "is_of_policy": _is_of_policy(ranking, latest),
        "steps": None,
        "headline": "",
        "unchanged": 0,
        "names": (),
        "after": None,
        "ways": [change_words(fix.change) for fix in fixes_of(latest)]
        if latest
        else (),
        "decisions": rows.filter(CHANGES_CLUSTERS).order_by("-number")[
            :_REVISIONS_SHOWN
        ],
    }
    if context["has_all"]:
        page = page_from(request, rows, order="-number", unique="number")
        context |= {"decisions": page.rows, "after": page.after}
    if latest and ranking:
        value = decision_of(ranking)
        context |= {
            "steps": last_steps(ranking),
            "headline": headline(value),
            "unchanged": latest.number - ranking.number,
            "names": value.cycle.fleet.names[:_NAMES_OFFERED],
        }
    return context


def _resources_tab(placement: Any) -> dict[str, Any]:
    snapshot = placement.resource_snapshots.filter(is_latest=True).first()
    identities: list[list[str]] = snapshot.identities if snapshot else []
    return {
        "resources": [
            (
                kind,
                space,
                name,
                url_of(
                    "resource",
                    "/".join((version.rpartition("/")[0], kind, space, name)),
                ),
            )
            for version, kind, space, name in identities[:_RESOURCES_SHOWN]
        ],
        "more_resources": max(0, len(identities) - _RESOURCES_SHOWN),
    }


TABS = ("decision", "rollouts", "resources", "manifest")
"""Tabs with an address of their own; the clusters are on the page of the placement."""


def _staged_context(placement: Placement) -> dict[str, Any]:
    """Return the newest run, and the failed clusters, which are retried only by a run."""
    of_placement = StagedRun.objects.filter(placement=placement)
    started = of_placement.filter(ended_at=None, started_at__isnull=False)
    runs = with_status(of_placement.select_related("placement"))
    runs = runs.annotate(has_started=Exists(started), runs_count=Window(Count("pk")))
    run: Any = runs.order_by("-pk").first()
    state, sentences = badges.run_state(run) if run else None, list[str]()
    if run and state and state.words in ("Waiting for approval", "Paused"):
        sentences = badges.without_status(sentences_of(run, result_in(run)), state)
    failed, waiting = failed_and_waiting(placement)
    has_started = run is not None and run.has_started
    return {
        "staged_run": run,
        "staged_state": state,
        "staged_sentences": sentences,
        "staged_started": has_started,
        "staged_waits": ""
        if has_started or placement.is_mirrored
        else waits_for_run(placement, waiting),
        "staged_count": run.runs_count if run else 0,
        "staged_failed": failed[:_FAILED_SHOWN],
        "staged_more": max(0, len(failed) - _FAILED_SHOWN),
    }


@for_readers
@require_safe
def placement_yaml(request: HttpRequest, name: str) -> HttpResponse:
    placement = get_object_or_404(Placement, full_name=name)
    manifest = placement.document
    if request.GET.get("status") != "0":
        manifest = manifest_of(placement)
    return as_file(
        HttpResponse(dump_yaml(manifest), content_type="application/yaml"),
        f"{name}.yaml",
    )


@for_operators("delete placements", of=of_placement)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    placement = get_object_or_404(Placement, full_name=name)
    if request.method == "POST":
        if delete_placement(name, **actor(request)):
            return redirect_after(
                request, f"Placement {name} deleted.", "web:placements"
            )
        return redirect_after(
            request, f"Deleting placement {name}.", "web:placement", name
        )

    placed = Binding.objects.filter(placement=placement).exclude(
        state=BindingState.UNSCHEDULED
    )
    return render(
        request,
        "placements/delete.html",
        {
            "placement": placement,
            "placed": placed.order_by("cluster_name")[:_CLUSTERS_SHOWN],
            "more": max(0, placed.count() - _CLUSTERS_SHOWN),
            "abandons": parse_placement(placement.document).spec.strategy.abandons,
            "applied_on": placed.exclude(state=BindingState.SCHEDULED).count(),
        },
    )
