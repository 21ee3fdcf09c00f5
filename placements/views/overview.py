"""The first page: what there is, what needs somebody, what was decided last."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve, reverse
from django.views.decorators.http import require_safe

from clusters.listing import label_keys
from clusters.topology import members_by
from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.demo import DEMO_SIZES
from placements.explain.charts.chart import Chart
from placements.explain.charts.waffle import waffle_chart
from placements.models import Decision, Resource
from placements.queries import overview as queries
from placements.queries.glance import MANY_CLUSTERS, Tight, ids_before, ineligible_counts, tightest
from placements.queries.headroom import Skew, stale_count, stale_placements
from placements.queries.rollout_needs import rollout_needs, run_counts
from placements.queries.staged_approvals import approvals_waiting, waiting_for
from placements.queries.topology import favourite_key
from placements.views import states
from placements.views.chart_tables import asked_table
from placements.views.people import user_of

_KEYS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class TightRow:
    """One placement: how much it has, how near it is to its limits, how its run stands."""

    tight: Tight
    picked: str
    state: states.State
    skews: list[tuple[Skew, states.State]]
    run: states.State | None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision, and where it is compared with the one before."""

    decision: Decision
    compare: str


@for_readers
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show the fleet at a glance, or, on an empty hub, how to begin."""
    counts = queries.counts()
    if not counts.clusters and not counts.placements and not Resource.objects.exists():
        return render_page(request, "overview/empty.html", {"sizes": DEMO_SIZES})
    keys = [key for key, _ in label_keys()]
    by = request.GET.get("by", "").strip() or favourite_key(keys)
    charts = _charts(by)
    table = asked_table(request, charts)
    if table:
        return table
    waiting = approvals_waiting()
    context = {
        "approvals": [
            waiting_for(one, user_of(request)) for one in waiting.order_by("asked_at")[: queries.MOST]
        ],
        "approvals_count": waiting.count(),
        "counts": counts,
        **_needs(counts),
        "runs": run_counts(),
        "decisions": _decisions(),
        "placements": [_tight(one) for one in tightest()],
        "charts": charts,
        "by": by,
        "keys": keys[:_KEYS_SHOWN],
    }
    return render_page(request, "overview/overview.html", context)


def _charts(by: str) -> list[Chart]:
    members = {
        value: [(name, str(state)) for name, state in group] for value, group in members_by(by).items()
    }
    chart = waffle_chart(by, members)
    return [chart] if chart else []


def _needs(counts: queries.Counts) -> dict[str, Any]:
    """Give what needs somebody; of a large fleet clusters are counted, not named."""
    is_large = counts.clusters > MANY_CLUSTERS
    return {
        "most": queries.MOST,
        "short": queries.short_placements(),
        "invalid": queries.invalid_placements(),
        "stale": stale_placements(most=queries.MOST),
        "stale_count": stale_count(),
        "rollouts": rollout_needs(),
        "is_large": is_large,
        "ineligible_counts": ineligible_counts() if is_large else [],
        "ineligible": [] if is_large else queries.ineligible_clusters(),
        "leaving": [] if is_large else queries.leaving_clusters(),
    }


def _tight(tight: Tight) -> TightRow:
    run = states.run_state(tight.run, tight.verdict) if tight.run else None
    skews = [(one, _skew_state(one)) for one in tight.skews]
    return TightRow(
        tight, states.picked_of(tight.placement), states.placement_state(tight.placement), skews, run
    )


def _skew_state(one: Skew) -> states.State:
    words = f"{one.key} {one.skew} of {one.most}"
    return states.State("attention" if one.skew > one.most else "ok", words)


def _decisions() -> list[DecisionRow]:
    found = list(queries.last_decisions())
    before = ids_before(found)
    return [DecisionRow(one, _compare(one, before.get(one.pk, ""))) for one in found]


def _compare(decision: Decision, before: str) -> str:
    """Give the address of the comparison with the decision before, where comparisons are served."""
    if not before:
        return ""
    page = reverse("pages:placement", args=[decision.placement_name])
    address = f"{page}compare/{before}..{decision.record.decision_id}/"
    try:
        resolve(address)
    except Resolver404:
        return ""
    return address
