"""Events: who did what to which object."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.models import Event
from placements.api.base import BaseViewSet, Params, Rows, paged_list
from placements.api.filters import EventQuery
from placements.api.schema import documented
from placements.api.serializers import EventRowSerializer, EventSerializer
from placements.services.filters import LIST_FILTERS, events_matching


class EventViewSet(BaseViewSet):
    model = Event
    lookup_path = "<number:number>"
    not_found = Http404

    def key(self) -> dict[str, int]:
        return {"pk": self.kwargs["number"]}

    @paged_list(
        "list_events", EventRowSerializer, query=EventQuery, order="-at", unique="id"
    )
    def list(self, params: Params) -> Rows:
        """List events, the newest first."""
        filters = {key: params.get(key, "") for key in LIST_FILTERS["events"]}
        return events_matching(
            part=params["q"], event_type=filters.pop("type"), **filters
        ).defer("before", "after")

    @documented("get_event", EventSerializer)
    def retrieve(self, request: Request, number: int) -> Response:
        """Get an event with the object before and after."""
        return Response(EventSerializer(self.get_object()).data)
