"""Events: who did what to which object."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.models import Event
from placements.api.base import BaseViewSet, query_params
from placements.api.filters import EventQuery
from placements.api.schema import documented, page_serializer
from placements.api.serializers import EventRowSerializer, EventSerializer
from placements.services.filters import events_matching


class EventViewSet(BaseViewSet):
    """All events."""

    queryset = Event.objects.all()
    lookup_path = "<number:number>"
    not_found = Http404

    def key(self) -> dict[str, int]:
        return {"pk": self.kwargs["number"]}

    @documented("list_events", {200: page_serializer(EventRowSerializer)}, query=EventQuery)
    def list(self, request: Request) -> Response:
        """List events, the newest first."""
        params = query_params(request, EventQuery)
        rows = events_matching(
            kind=params["kind"], name=params["name"], part=params["q"], by=params["by"]
        ).defer("before", "after")
        return self.list_response(rows, EventRowSerializer, params, order="-id", unique="id")

    @documented("get_event", {200: EventSerializer})
    def retrieve(self, request: Request, number: int) -> Response:
        """Get an event with the object before and after."""
        return Response(EventSerializer(self.get_object()).data)
