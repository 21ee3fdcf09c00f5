"""Placements: manifests, bindings, decisions and snapshots."""

import re
from typing import Any

from django.http import Http404
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, actor, get_placement, query_params
from placements.api.filters import ConfirmQuery, PageQuery, PartQuery, PlacementQuery
from placements.api.preconditions import expected_revision
from placements.api.schema import documented, documented_put, page_serializer
from placements.api.serializers import (
    BindingSerializer,
    DecisionRowSerializer,
    PlacementManifestSerializer,
    PlacementSerializer,
    PolicySnapshotSerializer,
    ResourceSnapshotRowSerializer,
    ResourceSnapshotSerializer,
)
from placements.models import Placement
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    bindings_of,
    decisions_of,
    latest_decisions,
    placements_matching,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.results import UnknownPlacementError
from placements.services.status import status_of

_MOST_WARNINGS, _LONGEST_WARNING = 10, 300


class PlacementViewSet(BaseViewSet):
    """All placements."""

    queryset = Placement.objects.all()
    not_found = UnknownPlacementError

    def manifest_and_status(self, row: Placement) -> tuple[Any, dict[str, Any]]:
        return row.document, status_of(row)

    @documented("list_placements", {200: page_serializer(PlacementSerializer)}, query=PlacementQuery)
    def list(self, request: Request) -> Response:
        """List placements."""
        params = query_params(request, PlacementQuery)
        state = params.get("state")
        chosen = PlacementFilter(
            params["q"],
            PlacementFilterState(state) if state else None,
            params.get("type", ""),
            params.get("semantics", ""),
            params["cluster"],
        )
        return self.list_response(
            placements_matching(chosen),
            PlacementSerializer,
            params,
            order=params["order"],
            context=lambda rows: {"decisions": latest_decisions(rows)},
        )

    @documented("get_placement", {200: PlacementManifestSerializer}, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a placement with its status."""
        return self.manifest_response()

    @documented_put("put_placement", PlacementManifestSerializer, query=ConfirmQuery, problems=(409,))
    def update(self, request: Request, name: str) -> Response:
        """Create or update a placement; it is scheduled soon after. The same again changes nothing.

        A change that would unschedule everything is refused (409) without `confirm`.
        """
        confirmed = "confirm" in query_params(request, ConfirmQuery)
        saved, response = self.put_manifest(save_placement, confirmed=confirmed)
        # As in Kubernetes: warnings are headers, which are ASCII.
        texts = [" ".join(f"{one.path}: {one.message}".split()) for one in saved.warnings][:_MOST_WARNINGS]
        quoted = [re.sub(r"[^ !#-\[\]-~]", "?", one[:_LONGEST_WARNING]) for one in texts]
        if quoted:
            response.headers["Warning"] = ", ".join(f'299 fleetui "{one}"' for one in quoted)
        return response

    @documented("delete_placement", {202: PlacementManifestSerializer, 204: None}, is_edit=True)
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a placement: 204 if it is deleted, 202 while clusters still have its resources."""
        if delete_placement(name, **actor(request), expected=expected_revision(request)):
            return Response(status=204)
        return self.manifest_response(status=202)

    @documented("list_placement_bindings", {200: page_serializer(BindingSerializer)}, query=PageQuery)
    @action(detail=True, url_name="placement-bindings")
    def bindings(self, request: Request, name: str) -> Response:
        """List the bindings of a placement, by cluster."""
        rows = bindings_of(self.get_object())
        return self.list_response(rows, BindingSerializer, order="cluster_name", unique="cluster_name")

    @documented("list_placement_decisions", {200: page_serializer(DecisionRowSerializer)}, query=PageQuery)
    @action(detail=True, url_name="placement-decisions")
    def decisions(self, request: Request, name: str) -> Response:
        """List the decisions of a placement, the newest first."""
        rows = decisions_of(placement=self.get_object().name)
        return self.list_response(rows, DecisionRowSerializer, order="-id", unique="id")


class SnapshotViewSet(BaseViewSet):
    """The policy snapshots and resource snapshots of a placement."""

    @documented("list_policy_snapshots", {200: page_serializer(PolicySnapshotSerializer)}, query=PageQuery)
    @action(detail=True, url_path="policy-snapshots")
    def policy_snapshots(self, request: Request, name: str) -> Response:
        """List the policy snapshots of a placement, the newest first."""
        rows = get_placement(name).policy_snapshots.select_related("placement")
        return self.list_response(rows, PolicySnapshotSerializer, order="-number", unique="number")

    @documented("get_policy_snapshot", {200: PolicySnapshotSerializer})
    @action(detail=True, url_path="policy-snapshots/<number:number>")
    def policy_snapshot(self, request: Request, name: str, number: int) -> Response:
        """Get a policy snapshot."""
        row = get_placement(name).policy_snapshots.filter(number=number).first()
        if row is None:
            raise Http404
        return Response(PolicySnapshotSerializer(row).data)

    @documented(
        "list_resource_snapshots", {200: page_serializer(ResourceSnapshotRowSerializer)}, query=PageQuery
    )
    @action(detail=True, url_path="resource-snapshots")
    def resource_snapshots(self, request: Request, name: str) -> Response:
        """List the resource snapshots of a placement, the newest first."""
        rows = get_placement(name).resource_snapshots.select_related("placement").defer("identities")
        return self.list_response(rows, ResourceSnapshotRowSerializer, order="-number", unique="number")

    @documented("get_resource_snapshot", {200: ResourceSnapshotSerializer}, query=PartQuery)
    @action(detail=True, url_path="resource-snapshots/<number:number>")
    def resource_snapshot(self, request: Request, name: str, number: int) -> Response:
        """Get a resource snapshot with one part of its manifests, at most 800 KiB or one object."""
        position = query_params(request, PartQuery)["part"]
        row = get_placement(name).resource_snapshots.filter(number=number).first()
        if row is None:
            raise Http404
        part = row.parts.filter(position=position).first()
        if part is None and position:
            raise Http404
        document = {
            **ResourceSnapshotRowSerializer(row).data,
            "identities": row.identities,
            "part": position,
            "parts": row.parts.count(),
            "manifests": part.manifests if part else [],
        }
        return Response(document)
