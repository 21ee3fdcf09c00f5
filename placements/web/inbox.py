"""The inbox: the attention list of all hubs that a person may see."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from clusters.hub_queries import hubs_with_role
from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.services.dashboard.causes import inbox_items
from placements.services.problems.root_causes import AttentionSection
from placements.web.dashboard import FILTERS
from placements.web.request import word_from

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
                (one, FILTERS[one], found.counts[one]) for one in AttentionSection
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
