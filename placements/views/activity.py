"""What happened: who did what to which object, newest first."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from placements.queries.lists import events_matching
from placements.views.happenings import happening_rows
from placements.views.lists import page_from

KINDS = (
    "cluster",
    "placement",
    "rollout",
    "resource",
    "budget",
    "staged-run",
    "staged-strategy",
    "approval-request",
)


@for_readers
@require_safe
def activity(request: HttpRequest) -> HttpResponse:
    """List the events that match, a page at a time."""
    given = {field: request.GET.get(field, "").strip() for field in ("kind", "name", "by")}
    rows = events_matching(kind=given["kind"], name=given["name"], by=given["by"])
    page = page_from(request, rows, order="-id", unique="id")
    context = {"events": happening_rows(page.rows), "after": page.after, "wanted": given, "kinds": KINDS}
    return render_page(request, "activity/list.html", context, fragment="activity/_list.html")
