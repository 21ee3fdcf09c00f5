"""Assertions of placements: what the latest check found."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, FullNameViewSet, MayRead, Params, Rows, listed, query_params
from placements.api.filters import AssertionQuery
from placements.api.schema import documented
from placements.api.serializers import AnyValue, CamelCaseSerializer, RowSerializer, text
from placements.engine.assertions import AssertionState
from placements.models import AssertionCheck, Placement
from placements.services.assertions import check_of, checks
from placements.services.results import UnknownPlacementError, get_placement


class AssertionSerializer(CamelCaseSerializer):
    """One assertion with its state, and what breaks it."""

    predicate = serializers.CharField()
    value = AnyValue()
    state = serializers.ChoiceField([str(one) for one in AssertionState])
    evidence = serializers.ListField(child=serializers.CharField())
    reason = serializers.CharField(allow_blank=True)


class PlacementAssertionsSerializer(RowSerializer):
    """The results for one placement, as of the latest check."""

    placement = text("placement.full_name")
    at = serializers.DateTimeField(source="checked_at")
    assertions: Any = AssertionSerializer(source="results", many=True)

    class Meta:
        model = AssertionCheck
        fields = ("placement", "at", "fleet_version", "broken", "unknown", "assertions")


class AssertionViewSet(BaseViewSet):
    """The assertions of all placements."""

    permission_classes = (MayRead,)

    @listed(
        "list_assertions",
        PlacementAssertionsSerializer,
        query=AssertionQuery,
        order="placement__full_name",
        unique="placement__full_name",
    )
    def list(self, params: Params) -> Rows:
        """List the placements with assertions, and what the latest check found."""
        return checks(params.get("state", ""))


class PlacementAssertionViewSet(FullNameViewSet):
    """The assertions of one placement."""

    permission_classes = (MayRead,)
    model = Placement
    not_found = UnknownPlacementError

    @documented("get_placement_assertions", PlacementAssertionsSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the assertions of a placement, and what the latest check found."""
        query_params(request)
        placement = get_placement(name)
        found = check_of(placement)
        if found is None:
            found = AssertionCheck(placement=placement, results=[], broken=0, unknown=0, fleet_version=0)
            found.checked_at = placement.updated_at
        return Response(PlacementAssertionsSerializer(found).data)
