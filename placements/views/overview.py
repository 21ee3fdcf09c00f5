"""The first page: what there is, what needs somebody, what was decided last."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.demo import DEMO_SIZES
from placements.models import Resource
from placements.queries import overview as queries
from placements.queries.rollout_needs import rollout_needs, run_counts
from placements.queries.staged_approvals import approvals_waiting, waiting_for
from placements.views.people import user_of
from placements.views.placements import placement_rows


@for_readers
@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Show the fleet at a glance, or, on an empty hub, how to begin."""
    counts = queries.counts()
    if not counts.clusters and not counts.placements and not Resource.objects.exists():
        return render_page(request, "overview/empty.html", {"sizes": DEMO_SIZES})
    waiting = approvals_waiting()
    context = {
        "approvals": [
            waiting_for(one, user_of(request)) for one in waiting.order_by("asked_at")[: queries.MOST]
        ],
        "approvals_count": waiting.count(),
        "counts": counts,
        "short": queries.short_placements(),
        "invalid": queries.invalid_placements(),
        "ineligible": queries.ineligible_clusters(),
        "leaving": queries.leaving_clusters(),
        "most": queries.MOST,
        "runs": run_counts(),
        "rollouts": rollout_needs(),
        "decisions": queries.last_decisions(),
        "placements": placement_rows(queries.least_fulfilled()),
    }
    return render_page(request, "overview/overview.html", context)
