"""What a live hub decided, as a file."""

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from fleetui.permissions import for_readers
from placements.hubs.explain.agreements import agreement_document, difference_csv
from placements.hubs.replay.queries import hub_side_of
from placements.services.decisions.records import decisions_named
from placements.web.request import as_file


@for_readers
@require_safe
def decision_on_hub(request: HttpRequest, prefix: str, form: str) -> HttpResponse:  # noqa: ARG001 -- of a view
    """Download the decision of the hub and its differences from the replay."""
    rows = decisions_named(prefix)
    side = hub_side_of(rows[0]) if len(rows) == 1 else None
    if side is None:
        raise Http404
    name = f"{rows[0].record.decision_id[:10]}-hub.{form}"
    if form == "json":
        return as_file(JsonResponse(agreement_document(side)), name)
    text = difference_csv(side.differences)
    return as_file(HttpResponse(text, content_type="text/csv; charset=utf-8"), name)
