"""Placements: manifests, bindings, decisions and snapshots."""

from datetime import UTC, datetime
from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.access.secret_values import manifest_for
from fleetui.apimachinery.yaml import dump_yaml
from placements.api.base import (
    FullNameViewSet,
    Params,
    Rows,
    actor,
    command_of,
    page_response,
    paged_list,
    query_params,
    route_of,
)
from placements.api.cluster_objects import (
    ClusterObjectSerializer,
    DifferenceSerializer,
    DryRunInputSerializer,
    DryRunSerializer,
    ReapplySerializer,
)
from placements.api.filters import (
    DeleteQuery,
    DriftQuery,
    NumberedPageQuery,
    PartQuery,
    PlacementQuery,
    PutPlacementQuery,
)
from placements.api.parsers import has_body, parse_body
from placements.api.preconditions import expected_revision
from placements.api.schema import (
    documented,
    documented_patch,
    documented_put,
    operation,
    page_serializer,
)
from placements.api.serializers import (
    PLACEMENT_MANIFEST,
    BindingSerializer,
    DecisionRowSerializer,
    PlacementSerializer,
    PolicySnapshotSerializer,
    ResourceSnapshotRowSerializer,
    ResourceSnapshotSerializer,
)
from placements.explain.cluster_objects import DifferenceType
from placements.models import Placement
from placements.services.actions import ACTIONS, ActionKind
from placements.services.dry_runs import dry_run_on_clusters
from placements.services.filters import (
    bindings_of,
    decisions_of,
    latest_decisions,
    placement_filter,
    placements_matching,
)
from placements.services.fleet.forms import read_documents
from placements.services.health import stored_healths
from placements.services.history.queries import with_revision
from placements.services.placements import delete_placement, save_placement
from placements.services.problems.book import bring_up_to_date
from placements.services.results import BESIDE, UnknownPlacementError, get_placement
from placements.services.rollouts.cluster_objects import (
    DifferenceFilter,
    differences_page,
    objects_on,
)
from placements.services.rollouts.operations import reapply
from placements.services.rollouts.read_objects import read_objects
from placements.services.status import status_of
from placements.services.teams import of_placement

LARGEST_PAGE = 100


class PlacementViewSet(FullNameViewSet):
    labels_of = staticmethod(of_placement)
    model = Placement
    not_found = UnknownPlacementError

    def own_name(self) -> str:
        """Return the name of the path without what distinguishes an OCM Placement beside another one."""
        return super().own_name().removesuffix(BESIDE)

    def namespace(self) -> str:
        """Return the namespace of the path, or of an OCM Placement that was saved under its name alone."""
        rows = Placement.objects.filter(full_name=self.kwargs["name"])
        for document in rows.values_list("document", flat=True):
            return str(document["metadata"].get("namespace") or "")
        return super().namespace()

    def manifest_and_status(self, row: Placement) -> tuple[Any, dict[str, Any]]:
        return row.document, status_of(row)

    @paged_list(
        "list_placements",
        PlacementSerializer,
        query=PlacementQuery,
        unique="full_name",
        context=lambda rows: {
            "decisions": latest_decisions(rows),
            "healths": stored_healths(rows, now=datetime.now(UTC)),
        },
    )
    def list(self, params: Params) -> Rows:
        """List placements."""
        bring_up_to_date(now=datetime.now(UTC))
        return with_revision(placements_matching(placement_filter(params)))

    @documented("get_placement", PLACEMENT_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a placement with its status."""
        return self.manifest_response()

    @documented_put("put_placement", PLACEMENT_MANIFEST, query=PutPlacementQuery)
    def update(self, request: Request, name: str) -> Response:
        """Create or update a placement; it is scheduled soon after. The same again changes nothing.

        A change that would unschedule everything is refused (409) without `confirm`.
        """
        options = {
            "confirmed": "confirm" in query_params(request, PutPlacementQuery),
            "address": name,
        }
        return self.put_manifest(save_placement, query=PutPlacementQuery, **options)

    @documented_patch("patch_placement", PLACEMENT_MANIFEST, query=PutPlacementQuery)
    def partial_update(self, request: Request, name: str) -> Response:
        """Change parts of a placement by a merge patch."""
        return self.update(request, name=name)

    @documented(
        "delete_placement",
        None,
        status=204,
        also={202: PLACEMENT_MANIFEST},
        query=DeleteQuery,
        is_edit=True,
    )
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a placement: 204 if it is deleted, 202 while clusters still have its resources."""
        if delete_placement(
            name, **actor(request), expected=expected_revision(request)
        ):
            return Response(status=204)
        return self.manifest_response(status=202)

    @paged_list(
        "list_placement_bindings",
        BindingSerializer,
        order="cluster_name",
        unique="cluster_name",
    )
    def bindings(self, params: Params, name: str) -> Rows:
        """List the bindings of a placement, by cluster."""
        return bindings_of(self.get_object())

    @operation(
        "list_binding_objects",
        page_serializer(ClusterObjectSerializer),
        query=NumberedPageQuery,
        path="bindings/<named:cluster>/objects",
    )
    def binding_objects(
        self,
        request: Request,
        name: str,
        cluster: str,
    ) -> Response:
        """List the objects of a placement on a cluster, in the order of applying."""
        params = query_params(request, NumberedPageQuery)
        return self._objects(
            request, name, cluster, first=params["after"], size=params["limit"]
        )

    def _objects(
        self,
        request: Request,
        name: str,
        cluster: str,
        *,
        first: int,
        size: int,
    ) -> Response:
        rows = bindings_of(get_placement(name)).select_related("resource_snapshot")
        binding = get_object_or_404(rows, cluster_name=cluster)
        objects, last = objects_on(binding), first + size
        items = ClusterObjectSerializer(
            objects[first:last], many=True, context={"observed_at": binding.observed_at}
        ).data
        return page_response(request, items, last if last < len(objects) else None)

    @operation(
        "read_binding_objects",
        page_serializer(ClusterObjectSerializer),
        method="post",
        path="bindings/<named:cluster>/objects/read",
        problems=(409,),
    )
    def read_binding_objects(
        self,
        request: Request,
        name: str,
        cluster: str,
    ) -> Response:
        """Read the objects of a placement on a cluster now, at most five seconds."""
        rows = bindings_of(get_placement(name)).select_related("placement")
        read_objects(get_object_or_404(rows, cluster_name=cluster))
        return self._objects(request, name, cluster, first=0, size=LARGEST_PAGE)

    @operation(
        "dry_run_placement",
        DryRunSerializer,
        method="post",
        path="diffs",
        body=DryRunInputSerializer,
        is_costly=True,
    )
    def diffs(self, request: Request, name: str) -> Response:
        """Try an edit on the clusters by dry runs, within 10 seconds; nothing is saved or applied."""
        row = get_placement(name)
        body = parse_body(request, DryRunInputSerializer) if has_body(request) else {}
        manifests = "---\n".join(map(dump_yaml, body.get("manifests", ())))
        result = dry_run_on_clusters(
            documents=read_documents(manifests) if manifests else (),
            placement=row.full_name,
            clusters=body.get("clusters", ()),
            **actor(request),
        )
        return Response(DryRunSerializer(result).data)

    @operation("list_drifts", page_serializer(DifferenceSerializer), query=DriftQuery)
    def drifts(self, request: Request, name: str) -> Response:
        """List the objects that differ from the hub, by cluster."""
        params = query_params(request, DriftQuery)
        chosen = DifferenceType(params["type"]) if "type" in params else None
        rows, after = differences_page(
            get_placement(name),
            DifferenceFilter(params["cluster"], params["kind"], params["path"], chosen),
            size=params["limit"],
            after=params.get("after", ""),
        )
        return page_response(request, DifferenceSerializer(rows, many=True).data, after)

    @operation(
        "reapply_placement",
        ReapplySerializer,
        method="post",
        status=202,
        body=ReapplySerializer,
        problems=(409,),
        route=route_of(ACTIONS[ActionKind.ROLLING, "reapply"]),
        commands=[command_of(ACTIONS[ActionKind.ROLLING, "reapply"])],
    )
    def reapply(self, request: Request, name: str) -> Response:
        """Apply the same version again on some clusters.

        Budgets of the rollout are not used: the version does not change.
        """
        clusters = parse_body(request, ReapplySerializer)["clusters"]
        return Response(
            {"clusters": reapply(name, clusters, **actor(request))}, status=202
        )

    @paged_list(
        "list_placement_decisions", DecisionRowSerializer, order="-id", unique="id"
    )
    def decisions(self, params: Params, name: str) -> Rows:
        """List the decisions of a placement, the newest first."""
        return decisions_of(placement=self.get_object().full_name)


class SnapshotViewSet(FullNameViewSet):
    @paged_list(
        "list_policy_snapshots",
        PolicySnapshotSerializer,
        order="-number",
        unique="number",
        path="policy-snapshots",
    )
    def policy_snapshots(self, params: Params, name: str) -> Rows:
        """List the policy snapshots of a placement, the newest first."""
        return get_placement(name).policy_snapshots.select_related("placement")

    @operation(
        "get_policy_snapshot",
        PolicySnapshotSerializer,
        path="policy-snapshots/<number:number>",
    )
    def policy_snapshot(
        self,
        request: Request,
        name: str,
        number: int,
    ) -> Response:
        """Get a policy snapshot."""
        return Response(
            PolicySnapshotSerializer(
                get_object_or_404(get_placement(name).policy_snapshots, number=number)
            ).data
        )

    @paged_list(
        "list_resource_snapshots",
        ResourceSnapshotRowSerializer,
        order="-number",
        unique="number",
        path="resource-snapshots",
    )
    def resource_snapshots(self, params: Params, name: str) -> Rows:
        """List the resource snapshots of a placement, the newest first."""
        return (
            get_placement(name)
            .resource_snapshots.select_related("placement")
            .defer("identities")
        )

    @operation(
        "get_resource_snapshot",
        ResourceSnapshotSerializer,
        query=PartQuery,
        path="resource-snapshots/<number:number>",
    )
    def resource_snapshot(
        self,
        request: Request,
        name: str,
        number: int,
    ) -> Response:
        """Get a resource snapshot with one part of its manifests, at most 800 KiB or one object."""
        position = query_params(request, PartQuery)["part"]
        row = get_object_or_404(get_placement(name).resource_snapshots, number=number)
        part = row.parts.filter(position=position).first()
        if part is None and position:
            raise Http404
        return Response(
            {
                **ResourceSnapshotRowSerializer(row).data,
                "identities": row.identities,
                "part": position,
                "parts": row.parts.count(),
                "manifests": manifest_for(request.user, part.manifests, name=str(row))
                if part
                else [],
            }
        )
