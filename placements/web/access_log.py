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
from placements.services.filters import LIST_FILTERS
from placements.web.filter_bar import Facet, filter_bar, read_filters
from placements.web.request import page_from


def _matching_lines(request: HttpRequest) -> QuerySet[AccessEvent]:
    """Return the lines that match the filters. Raise PermissionDenied for users who may not read the log."""
    if not may_view_access_log(request.user):
        raise PermissionDenied("You don't have permission to view the access log.")
    filters = read_filters(request, "access-log", verb=VERBS)
    return lines_matching(text=filters.pop("q"), **filters)


@for_readers
@never_cache
@require_safe
def access_log(request: HttpRequest) -> HttpResponse:
    """List the lines that match, newest first, a page at a time."""
    page = page_from(request, _matching_lines(request), order="-at", unique="id")
    return render_page(
        request,
        "access/log.html",
        {
            "lines": [(line, detail_words(line.details)) for line in page.rows],
            "after": page.after,
            "bar": filter_bar(
                request,
                LIST_FILTERS["access-log"],
                [
                    Facet(
                        "verb",
                        "Action",
                        [(one, one.capitalize(), None) for one in VERBS],
                    )
                ],
                verb=VERBS,
            ),
        },
        fragment="access/_log.html",
    )


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
