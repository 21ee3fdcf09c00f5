"""The page of a version of the fleet of a live hub, which decisions cite."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.services.hubs.queries import version_changes, version_numbered


@for_readers
@require_safe
def fleet_version(request: HttpRequest, number: int) -> HttpResponse:
    """Show a version: when it was seen, and what it changed."""
    version = version_numbered(number)
    if version is None:
        raise Http404(f"There is no version {number} of the fleet. Those that no decision cites are pruned.")
    context = {"version": version, "changes": version_changes(version)}
    return render_page(request, "clusters/version.html", context, fragment="clusters/version.html")
