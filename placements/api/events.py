"""Events: who did what to which object."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.models import Event as Row
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.shapes.queries import EventQuery
from placements.api.shapes.rows import EventRow, EventShape
from placements.queries.lists import events_matching


class Events(Endpoint):
    """Everything that happened."""

    @described("list_events", {200: page_shape(EventRow)}, query=EventQuery)
    def get(self, request: Request) -> Response:
        """List events, the newest first."""
        wanted = asked(request, EventQuery)
        rows = events_matching(kind=wanted["kind"], name=wanted["name"], part=wanted["q"], by=wanted["by"])
        page = page_asked(rows.defer("before", "after"), wanted, order="-id", unique="id")
        return listed(request, rows_as(EventRow, page.rows), page.after)


class Event(Endpoint):
    """One thing that happened."""

    @described("get_event", {200: EventShape})
    def get(self, request: Request, number: int) -> Response:  # noqa: ARG002 -- the framework's
        """Give an event with what was there before and after."""
        found = Row.objects.filter(pk=number).first()
        if found is None:
            raise Http404
        return Response(EventShape(found).data)
