"""Clusters: the list, and one as its manifest."""

from rest_framework.request import Request
from rest_framework.response import Response

from clusters.listing import ClusterFilter, State, clusters_matching, cordoned_among
from clusters.models import MemberCluster
from clusters.operations.joining import Did, Wanted, put_cluster
from clusters.operations.leaving import leave
from clusters.queries import status_of
from placements.api.bodies import Placed, document_of
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import cluster_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.manifests import ClusterManifest
from placements.api.shapes.queries import ClusterQuery
from placements.api.shapes.rows import ClusterRow
from placements.queries.lists import placements_on


class Clusters(Endpoint):
    """The fleet."""

    @described("list_clusters", {200: page_shape(ClusterRow)}, query=ClusterQuery)
    def get(self, request: Request) -> Response:
        """List clusters."""
        wanted = asked(request, ClusterQuery)
        state = wanted.get("state")
        rows = clusters_matching(
            ClusterFilter(
                wanted["q"],
                tuple(wanted["label"]),
                State(state) if state else None,
                wanted.get("verdict", ""),
            )
        )
        page = page_asked(rows, wanted, order=wanted["order"])
        known = {
            "cordoned": cordoned_among(page.rows),
            "placements": placements_on(row.name for row in page.rows),
        }
        return listed(request, rows_as(ClusterRow, page.rows, **known), page.after)


class Cluster(Endpoint):
    """One cluster, as its manifest."""

    @described("get_cluster", {200: ClusterManifest}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the manifest with its status."""
        return answer_cluster(request, cluster_named(name))

    @described(
        "put_cluster",
        {200: ClusterManifest, 201: ClusterManifest},
        body=ClusterManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, name: str) -> Response:
        """Let a cluster join, or give it a new manifest; the same again changes nothing."""
        exists = MemberCluster.objects.filter(name=name).exists()
        expected = expected_revision(request, exists=exists)
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            put = put_cluster(Wanted(document), **caller(request), expected=expected)
        status = 201 if put.did is Did.JOINED else 200
        return answer_cluster(request, cluster_named(put.name), status=status)

    @described("delete_cluster", {202: ClusterManifest}, is_edit=True)
    def delete(self, request: Request, name: str) -> Response:
        """Send a cluster out of the fleet; what is placed on it stays there."""
        leave([name], **caller(request), expected=expected_revision(request))
        return answer_cluster(request, cluster_named(name), status=202)


def answer_cluster(request: Request, row: MemberCluster, *, status: int = 200) -> Response:
    """Answer with a cluster's manifest."""
    written = status_of(row)
    return answered(
        request, {**row.document, "status": written}, tag_of(row.revision, written), status=status
    )
