"""The access log: who logged in, changed access or was refused; for those who may view it."""

from rest_framework import serializers

from fleetui.access.audit import VERBS, lines_matching
from fleetui.access.models import AccessEvent
from fleetui.permissions import may_view_access_log
from placements.api.base import (
    BaseViewSet,
    MayRead,
    Params,
    Rows,
    UserPermission,
    paged_list,
)
from placements.api.filters import AccessLogQuery
from placements.api.serializers import AnyObject, RowSerializer, enum


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
