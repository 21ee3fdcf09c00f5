"""The fleet and its bindings in one response: what `simulate --diff --fleet URL` reads."""

from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, MayRead
from placements.api.filters import NoQuery
from placements.api.preconditions import etag_response
from placements.api.schema import documented
from placements.api.serializers import (
    AnyObject,
    CamelCaseSerializer,
    json_field,
    map_of,
)
from placements.services.fleet.snapshot import fleet_snapshot

_BINDINGS = json_field(
    map_of({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
)


class FleetSnapshotSerializer(CamelCaseSerializer):
    """Clusters and bindings as `simulate` reads them from files."""

    fleet_version = serializers.IntegerField()
    digest = serializers.CharField(help_text="SHA-256 of the clusters and bindings.")
    clusters = serializers.ListField(child=AnyObject(), help_text="Plain clusters.")
    bindings = _BINDINGS(help_text="Plain bindings by the full name of the placement.")


@method_decorator(gzip_page, name="dispatch")
class FleetSnapshotViewSet(BaseViewSet):
    """The whole fleet, compressed where the client accepts it."""

    permission_classes = (MayRead,)

    @documented(
        "get_fleet_snapshot",
        FleetSnapshotSerializer,
        has_tag=True,
        is_costly=True,
        query=NoQuery,
    )
    def retrieve(self, request: Request) -> Response:
        """Get all clusters and the bindings of all placements."""
        snapshot = fleet_snapshot()
        return etag_response(request, snapshot, f'"{snapshot["digest"]}"')
