"""The search box; what is found alone is opened at once."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from placements.models import Resource
from placements.queries.searching import MOST, Found, find, pair_named


@for_readers
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Find by name, by the beginning of a decision's id, or "cluster placement": why is it there or not."""
    text = request.GET.get("q", "").strip()
    found = find(text)
    only = _pair(text) or _only(text, found)
    if only:
        return redirect(only)
    resources = [(one, resource_url(one)) for one in found.resources]
    return render(
        request, "search.html", {"text": text, "most": MOST, "found": found, "resources": resources}
    )


def _only(text: str, found: Found) -> str:
    """Give the address of what has exactly this name, or is the only thing found."""
    named = [
        *((name, reverse("pages:cluster", args=[name])) for name in found.clusters),
        *((name, reverse("pages:placement", args=[name])) for name in found.placements),
        *(
            (one.record.decision_id, reverse("pages:decision", args=[one.record.decision_id]))
            for one in found.decisions
        ),
    ]
    exactly = [url for name, url in named if name == text.lower()]
    if len(exactly) == 1:
        return exactly[0]
    numbered = [reverse("pages:rollout", args=[one.placement_name, one.number]) for one in found.runs]
    addresses = [*(url for _, url in named), *numbered, *map(resource_url, found.resources)]
    return addresses[0] if len(addresses) == 1 else ""


def resource_url(one: Resource) -> str:
    """Give the page of an object on the hub."""
    return reverse("pages:resource", args=[one.group or "_", one.kind, one.namespace or "_", one.name])


def _pair(text: str) -> str:
    """Give the decision page for a cluster and a placement named together, in either order."""
    pair = pair_named(text)
    if pair is None:
        return ""
    return f"{reverse('pages:decision', args=[pair.decision_id])}?cluster={pair.cluster}#why"
