"""Snapshots of a placement: frozen policies, frozen resources."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import placement_named
from placements.api.shapes.queries import PageQuery, PartQuery
from placements.api.shapes.rows import PolicySnapshotRow, ResourceSnapshotRow, ResourceSnapshotShape


class PolicySnapshots(Endpoint):
    """The policies that a placement had."""

    @described("list_policy_snapshots", {200: page_shape(PolicySnapshotRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List policy snapshots, the newest first."""
        wanted = asked(request, PageQuery)
        rows = placement_named(name).policy_snapshots.select_related("placement")
        page = page_asked(rows, wanted, order="-number", unique="number")
        return listed(request, rows_as(PolicySnapshotRow, page.rows), page.after)


class PolicySnapshot(Endpoint):
    """One policy that a placement had."""

    @described("get_policy_snapshot", {200: PolicySnapshotRow})
    def get(self, request: Request, name: str, number: int) -> Response:  # noqa: ARG002 -- the framework's
        """Give one policy snapshot."""
        found = placement_named(name).policy_snapshots.filter(number=number).first()
        if found is None:
            raise Http404
        return Response(PolicySnapshotRow(found).data)


class ResourceSnapshots(Endpoint):
    """The resources that a placement took along."""

    @described("list_resource_snapshots", {200: page_shape(ResourceSnapshotRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List resource snapshots, the newest first."""
        wanted = asked(request, PageQuery)
        rows = placement_named(name).resource_snapshots.select_related("placement").defer("identities")
        page = page_asked(rows, wanted, order="-number", unique="number")
        return listed(request, rows_as(ResourceSnapshotRow, page.rows), page.after)


class ResourceSnapshot(Endpoint):
    """Resources that a placement took along, with their content."""

    @described("get_resource_snapshot", {200: ResourceSnapshotShape}, query=PartQuery)
    def get(self, request: Request, name: str, number: int) -> Response:
        """Give one resource snapshot with one part of its manifests, at most 800 KiB or one object."""
        position = asked(request, PartQuery)["part"]
        found = placement_named(name).resource_snapshots.filter(number=number).first()
        if found is None:
            raise Http404
        part = found.parts.filter(position=position).first()
        if part is None and position:
            raise Http404
        document = {
            **ResourceSnapshotRow(found).data,
            "identities": found.identities,
            "part": position,
            "parts": found.parts.count(),
            "manifests": part.manifests if part else [],
        }
        return Response(document)
