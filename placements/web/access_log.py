"""The access log: who logged in, changed access or was refused; and its export."""

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from fleetui.access.audit import VERBS, detail_words, json_lines, lines_matching
from fleetui.access.models import AccessEvent
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_readers, may_view_access_log
from placements.web.filter_bar import Facet, filter_bar, read_typed
from placements.web.request import page_from

_FILTERS = ("verb", "by", "address")


def _matching_lines(request: HttpRequest) -> QuerySet[AccessEvent]:
    """Return the lines that match the filters. Raise PermissionDenied for users who may not read the log."""
    if not may_view_access_log(request.user):
        raise PermissionDenied("You don't have permission to view the access log.")
    text = read_typed(request, _FILTERS)
    filters = {
        name: request.GET.get(name, "").strip().replace("\x00", "") for name in _FILTERS
    }
    verb = filters["verb"] if filters["verb"] in VERBS else ""
    return lines_matching(
        verb=verb,
        by=filters["by"],
        text=text.replace("\x00", ""),
        address=filters["address"],
    )


@for_readers
@never_cache
@require_safe
def access_log(request: HttpRequest) -> HttpResponse:
    """List the lines that match, newest first, a page at a time."""
    page = page_from(request, _matching_lines(request), order="-at", unique="id")
    verbs = [(one, one.capitalize(), None) for one in VERBS]
    bar = filter_bar(request, _FILTERS, [Facet("verb", "Action", verbs)], verb=VERBS)
    context = {
        "lines": [(line, detail_words(line.details)) for line in page.rows],
        "after": page.after,
        "bar": bar,
    }
    return render_page(request, "access/log.html", context, fragment="access/_log.html")


@for_readers
@costly
@never_cache
@require_safe
def export(request: HttpRequest) -> HttpResponseBase:
    """Download the lines that match as JSON, one a line, oldest first."""
    return StreamingHttpResponse(
        json_lines(_matching_lines(request)),
        content_type="application/jsonl; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="access-log.jsonl"'},
    )
