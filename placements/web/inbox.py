"""The inbox: what a user should act on, in all hubs that they may see."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from clusters.hubs.queries import hubs_with_role
from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.services.hubs.inbox import InboxGroup, InboxItem, InboxKind, inbox, reader_of
from placements.web.request import at_hub

MOST_SHOWN = 20
"""Of each kind, while all kinds are shown."""


@dataclass(frozen=True, slots=True)
class InboxRow:
    """An item with the page to open."""

    item: InboxItem
    url: str


@dataclass(frozen=True, slots=True)
class InboxPanel:
    """One kind: its first items, and how many are left out."""

    group: InboxGroup
    rows: tuple[InboxRow, ...]

    @property
    def more(self) -> int:
        return self.group.count - len(self.rows)


@for_readers
@require_safe
def show_inbox(request: HttpRequest) -> HttpResponse:
    """Show the items by kind, of one hub or kind if the address names it."""
    chosen, hub = request.GET.get("kind", ""), request.GET.get("hub", "").strip()
    kinds = [one for one in InboxKind if one == chosen]
    most, now = None if kinds else MOST_SHOWN, datetime.now(UTC)
    groups = inbox(reader_of(request.user, now=now, hub=hub), kinds=kinds or tuple(InboxKind))
    panels = [
        InboxPanel(one, tuple(InboxRow(item, url_of_item(item)) for item in one.items[:most]))
        for one in groups
        if one.items
    ]
    context = {
        "panels": panels,
        "count": sum(one.count for one in groups),
        "kind": chosen if kinds else "",
        "hub": hub,
        "hubs": list(hubs_with_role(request.user).order_by("name").values_list("name", flat=True)),
    }
    return render_page(request, "inbox/inbox.html", context, fragment="inbox/_list.html")


def url_of_item(item: InboxItem) -> str:
    """Return the page of the object of an item, on its hub."""
    page = str(item.facts["page"])
    if page == "hub":
        return reverse("web:hub-about", args=[item.name])
    if page == "decision" and item.facts["decision"]:
        return at_hub(item.hub, f"{reverse('web:decision', args=[item.facts['decision']])}#hub")
    if page == "rollout":
        return at_hub(item.hub, reverse("web:rollout", args=[item.name, item.facts["number"]]))
    noun = "placement" if page == "decision" else page
    return at_hub(item.hub, reverse(f"web:{noun}", args=[item.name]))
