"""The inbox: what a user should act on, in all hubs that they may see."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from clusters.hub_queries import hubs_with_role
from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.models import ProblemKind
from placements.services.problems.inbox import InboxGroup, InboxItem, inbox

MOST_SHOWN = 20
"""Of each kind, while all kinds are shown."""


@dataclass(frozen=True, slots=True)
class InboxPanel:
    """One kind: its first items, and how many are left out."""

    group: InboxGroup
    rows: tuple[InboxItem, ...]

    @property
    def more(self) -> int:
        return self.group.count - len(self.rows)


@for_readers
@require_safe
def show_inbox(request: HttpRequest) -> HttpResponse:
    """Show the items by kind, of one hub or kind if the address names it."""
    chosen, hub = request.GET.get("kind", ""), request.GET.get("hub", "").strip()
    kinds = [one for one in ProblemKind if one == chosen]
    most = None if kinds else MOST_SHOWN
    groups = inbox(request.user, now=datetime.now(UTC), hub=hub, kinds=kinds or tuple(ProblemKind))
    context = {
        "panels": [InboxPanel(one, one.items[:most]) for one in groups if one.items],
        "count": sum(one.count for one in groups),
        "kind": chosen if kinds else "",
        "hub": hub,
        "hubs": list(hubs_with_role(request.user).order_by("name").values_list("name", flat=True)),
    }
    return render_page(request, "inbox/inbox.html", context, fragment="inbox/_list.html")
