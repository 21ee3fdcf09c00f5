"""The search page; a single result is opened immediately."""

from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from clusters.filters import ClusterListState, list_state
from clusters.hub_queries import hubs_with_role
from clusters.models import MemberCluster
from fleetui.documentation import pages_matching
from fleetui.htmx import wants_fragment
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.permissions import for_readers
from placements.services.health import healths_named
from placements.services.problems.book import bring_up_to_date
from placements.services.searching import (
    MOST,
    HubResult,
    SearchResult,
    completed,
    find,
    find_on_hubs,
    pair_named,
)
from placements.web import badges
from placements.web.activity import resource_url
from placements.web.request import at_hub

_DOCUMENTS = 8


@for_readers
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Search by name, start of a decision id, or "cluster placement" for the explanation of that cluster."""
    text = request.GET.get("q", "").strip()
    if wants_fragment(request):
        return render(request, "search_names.html", {"names": completed(text)})
    if pair := pair_named(text):
        return redirect(
            f"{reverse('web:decision', args=[pair.decision_id])}?cluster={pair.cluster}#why"
        )
    results, elsewhere = find(text), _on_other_hubs(request, text)
    only = _only(text, results) if results.count else ""
    if len(elsewhere) == 1 and not results.count:
        only = url_of_result(elsewhere[0])
    elif any(result.name == text.lower() for result in elsewhere) or (
        elsewhere and results.count == 1
    ):
        only = ""
    if only:
        return redirect(only)
    documents = pages_matching(text, most=_DOCUMENTS)
    now = datetime.now(UTC)
    if results.placements:
        bring_up_to_date(now=now)
    clusters = MemberCluster.objects.filter(name__in=results.clusters)
    states = clusters.annotate(how=list_state(now=now)).values_list("name", "how")
    healths = healths_named(results.placements, now=now) if results.placements else {}
    return render(
        request,
        "search.html",
        {
            "text": text,
            "most": MOST,
            "results": results,
            "elsewhere": [(result, url_of_result(result)) for result in elsewhere],
            "documents": documents,
            "is_empty": not (results.count or elsewhere or documents),
            "clusters": [
                (name, badges.STATE_BADGES[ClusterListState(how)])
                for name, how in states.order_by("name")
            ],
            "placements": [
                (name, badges.placement_state(healths[name]))
                for name in sorted(healths)
            ],
            "resources": [
                (resource, resource_url(resource)) for resource in results.resources
            ],
        },
    )


def _on_other_hubs(request: HttpRequest, text: str) -> list[HubResult]:
    """Return the results on the live hubs that the user may see; below the address of a hub, none."""
    if not text or current_hub_id() != LOCAL_HUB:
        return []
    hubs = hubs_with_role(request.user).exclude(pk=LOCAL_HUB)
    return find_on_hubs(text, dict(hubs.values_list("pk", "name")))


def url_of_result(one: HubResult) -> str:
    arguments = [one.name] if one.number is None else [one.name, one.number]
    return at_hub(one.hub, reverse(f"web:{one.noun}", args=arguments))


def _only(text: str, results: SearchResult) -> str:
    """Return the address of the object with exactly this name, or of the only result."""
    named = [
        *((name, reverse("web:cluster", args=[name])) for name in results.clusters),
        *((name, reverse("web:placement", args=[name])) for name in results.placements),
        *(
            (
                decision.record.decision_id,
                reverse("web:decision", args=[decision.record.decision_id]),
            )
            for decision in results.decisions
        ),
    ]
    exactly = [url for name, url in named if name == text.lower()]
    if len(exactly) == 1:
        return exactly[0]
    numbered = [
        reverse("web:rollout", args=[run.placement_name, run.number])
        for run in results.runs
    ]
    addresses = [
        *(url for _, url in named),
        *numbered,
        *map(resource_url, results.resources),
    ]
    return addresses[0] if len(addresses) == 1 else ""
