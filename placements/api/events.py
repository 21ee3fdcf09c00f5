"""Events: who did what to which object; and the lines of the access log."""

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.access.audit import VERBS, lines_matching
from fleetui.access.models import AccessEvent
from fleetui.models import Event
from fleetui.permissions import may_view_access_log
from placements.api.base import (
    BaseViewSet,
    MayRead,
    Params,
    Rows,
    UserPermission,
    paged_list,
)
from placements.api.filters import AccessLogQuery, EventQuery
from placements.api.schema import documented
from placements.api.serializers import (
    AnyObject,
    EventRowSerializer,
    EventSerializer,
    RowSerializer,
    enum,
)
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


class MayViewAccessLog(UserPermission):
    message = (
        "The access log requires a superuser or the permission access.view_access_log."
    )
    is_allowed = staticmethod(may_view_access_log)


class AccessEventSerializer(RowSerializer):
    """A line of the access log."""

    actor = serializers.CharField(source="actor_name")
    verb = enum(VERBS)
    details = AnyObject()

    class Meta:
        model = AccessEvent
        fields = ("at", "actor", "verb", "subject", "address", "request_id", "details")


class AccessLogViewSet(BaseViewSet):
    permission_classes = (MayRead, MayViewAccessLog)

    @paged_list(
        "list_access_log",
        AccessEventSerializer,
        query=AccessLogQuery,
        order="-at",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List the lines of the access log, the newest first."""
        return lines_matching(
            verb=params.get("verb", ""),
            by=params["by"],
            text=params["q"],
            address=params["address"],
        )
