"""The search page; a single result is opened immediately."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.permissions import for_readers
from placements.services.health import healths_named
from placements.services.searching import MOST, SearchResult, find, pair_named
from placements.web import badges
from placements.web.events import resource_url


@for_readers
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Search by name, start of a decision id, or "cluster placement" for the explanation of that cluster."""
    text = request.GET.get("q", "").strip()
    if pair := pair_named(text):
        return redirect(f"{reverse('web:decision', args=[pair.decision_id])}?cluster={pair.cluster}#why")
    found = find(text)
    if only := _only(text, found):
        return redirect(only)
    healths = healths_named(found.placements, now=datetime.now(UTC)) if found.placements else {}
    context = {
        "text": text,
        "most": MOST,
        "found": found,
        "placements": [(name, badges.placement_state(healths[name])) for name in sorted(healths)],
        "resources": [(one, resource_url(one)) for one in found.resources],
    }
    return render(request, "search.html", context)


def _only(text: str, found: SearchResult) -> str:
    """Return the address of the object with exactly this name, or of the only result."""
    named = [
        *((name, reverse("web:cluster", args=[name])) for name in found.clusters),
        *((name, reverse("web:placement", args=[name])) for name in found.placements),
        *(
            (one.record.decision_id, reverse("web:decision", args=[one.record.decision_id]))
            for one in found.decisions
        ),
    ]
    exactly = [url for name, url in named if name == text.lower()]
    if len(exactly) == 1:
        return exactly[0]
    numbered = [reverse("web:rollout", args=[one.placement_name, one.number]) for one in found.runs]
    addresses = [*(url for _, url in named), *numbered, *map(resource_url, found.resources)]
    return addresses[0] if len(addresses) == 1 else ""
