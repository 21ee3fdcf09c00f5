"""Assertions of placements: what the latest check found."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.permissions import by_operation
from placements.api.base import (
    BaseViewSet,
    FullNameViewSet,
    MayRead,
    Params,
    Rows,
    actor,
    paged_list,
    query_params,
)
from placements.api.filters import AssertionQuery
from placements.api.preconditions import expected_revision
from placements.api.schema import documented, operation
from placements.api.serializers import ASSERTION_MANIFEST, AnyValue, CamelCaseSerializer, RowSerializer, text
from placements.engine.assertions import AssertionState
from placements.models import AssertionCheck, AssertionDocument
from placements.services.assertions import UnknownAssertionsError, check_of, checks, delete_assertions
from placements.services.results import get_placement


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

    @paged_list(
        "list_assertions",
        PlacementAssertionsSerializer,
        query=AssertionQuery,
        order="placement__full_name",
        unique="placement__full_name",
    )
    def list(self, params: Params) -> Rows:
        """List the placements with assertions, and what the latest check found."""
        return checks(params.get("state", ""))


class AssertionDocumentViewSet(BaseViewSet):
    """One PlacementAssertion; `apply` creates and changes them."""

    labels_of = staticmethod(by_operation)
    model = AssertionDocument
    not_found = UnknownAssertionsError

    @documented("get_placement_assertion", ASSERTION_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get a PlacementAssertion."""
        return self.manifest_response()

    @documented("delete_placement_assertion", None, status=204, is_edit=True)
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a PlacementAssertion; its placements are checked again."""
        delete_assertions(name, **actor(request), expected=expected_revision(request))
        return Response(status=204)


class PlacementAssertionViewSet(FullNameViewSet):
    """The assertions of one placement."""

    permission_classes = (MayRead,)

    @operation("get_placement_assertions", PlacementAssertionsSerializer)
    def assertions(self, request: Request, name: str) -> Response:
        """Get the assertions of a placement, and what the latest check found."""
        query_params(request)
        placement = get_placement(name)
        check = check_of(placement)
        if check is None:
            check = AssertionCheck(placement=placement, results=[], broken=0, unknown=0, fleet_version=0)
            check.checked_at = placement.updated_at
        return Response(PlacementAssertionsSerializer(check).data)
