"""The search box: clusters, placements and decisions by name; what is found alone is opened at once."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from clusters.listing import ClusterFilter, clusters_matching
from clusters.models import MemberCluster
from fleetui.access import for_readers
from placements.models import Placement
from placements.queries.lists import PlacementFilter, latest_decisions, placements_matching
from placements.queries.records import decisions_named

_SHOWN = 20


@for_readers
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Find by name, by the beginning of a decision's id, or "cluster placement": why is it there or not."""
    text = request.GET.get("q", "").strip()
    found = _found(text)
    only = _pair(text) or _only(text, found)
    if only:
        return redirect(only)
    return render(request, "search.html", {"text": text, "most": _SHOWN, **found})


def _found(text: str) -> dict[str, list[Any]]:
    if not text:
        return {"clusters": [], "placements": [], "decisions": []}
    clusters = clusters_matching(ClusterFilter(text=text)).only("name").order_by("name")
    placements = placements_matching(PlacementFilter(text=text)).only("name").order_by("name")
    return {
        "clusters": list(clusters[:_SHOWN]),
        "placements": list(placements[:_SHOWN]),
        "decisions": decisions_named(text),
    }


def _only(text: str, found: dict[str, list[Any]]) -> str:
    """Give the address of what has exactly this name, or is the only thing found."""
    addresses = [
        *((one.name, reverse("pages:cluster", args=[one.name])) for one in found["clusters"]),
        *((one.name, reverse("pages:placement", args=[one.name])) for one in found["placements"]),
        *(
            (one.record.decision_id, reverse("pages:decision", args=[one.record.decision_id]))
            for one in found["decisions"]
        ),
    ]
    named = [url for name, url in addresses if name == text.lower()]
    if len(addresses) == 1 or len(named) == 1:
        return (named or [addresses[0][1]])[0]
    return ""


def _pair(text: str) -> str:
    """Give the decision page for a cluster and a placement named together, in either order."""
    words = text.lower().split()
    if len(words) != 2:
        return ""
    cluster = MemberCluster.objects.filter(name__in=words).values_list("name", flat=True).first()
    placement = Placement.objects.filter(name__in=words).first()
    if cluster is None or placement is None or {cluster, placement.name} != set(words):
        return ""
    decision = latest_decisions([placement]).get(placement.pk)
    if decision is None:
        return ""
    return f"{reverse('pages:decision', args=[decision.record.decision_id])}?cluster={cluster}#why"
