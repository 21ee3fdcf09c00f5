"""Parts of a cluster: its labels, taints, cordon, heartbeat, and what is placed on it."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from clusters.drivers.base import Observation
from clusters.models import MemberCluster
from clusters.operations.editing import change_labels, cordon, set_labels, set_taints, uncordon
from clusters.operations.observing import report
from placements.api.bodies import PATCH_PARSERS, Placed, document_of, object_in
from placements.api.clusters import answer_cluster
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import cluster_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.manifests import (
    LABEL_PATCH,
    LABELS,
    ClusterManifest,
    HeartbeatShape,
    Taint,
    VerdictShape,
)
from placements.api.shapes.queries import PageQuery
from placements.api.shapes.rows import BindingRow
from placements.queries.lists import bindings_on
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.member import parse_heartbeat


class ClusterLabels(Endpoint):
    """The labels of a cluster."""

    parser_classes = PATCH_PARSERS

    @described("get_cluster_labels", {200: LABELS}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the labels."""
        return _labels(request, cluster_named(name))

    @described("put_cluster_labels", {200: LABELS}, body=LABELS, is_edit=True, has_tag=True)
    def put(self, request: Request, name: str) -> Response:
        """Replace all labels."""
        expected = expected_revision(request)
        document = document_of(request)
        with Placed(document):
            labels = object_in(document, what="an object of labels")
            set_labels(name, labels, **caller(request), expected=expected)
        return _labels(request, cluster_named(name))

    @described(
        "patch_cluster_labels",
        {200: LABELS},
        body=LABEL_PATCH,
        media_types=("application/merge-patch+json", "application/json"),
        is_edit=True,
        has_tag=True,
    )
    def patch(self, request: Request, name: str) -> Response:
        """Set labels, and remove those that are null (a merge patch)."""
        expected = expected_revision(request)
        document = document_of(request)
        with Placed(document):
            patch = object_in(document, what="a merge patch of labels")
            put = {key: value for key, value in patch.items() if value is not None}
            change_labels(
                [name], put=put, remove=patch.keys() - put.keys(), **caller(request), expected=expected
            )
        return _labels(request, cluster_named(name))


def _labels(request: Request, row: MemberCluster) -> Response:
    labels = row.document["metadata"].get("labels") or {}
    return answered(request, labels, tag_of(row.revision))


class ClusterTaints(Endpoint):
    """The taints of a cluster."""

    @described("get_cluster_taints", {200: Taint(many=True)}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the taints."""
        return _taints(request, cluster_named(name))

    @described(
        "put_cluster_taints", {200: Taint(many=True)}, body=Taint(many=True), is_edit=True, has_tag=True
    )
    def put(self, request: Request, name: str) -> Response:
        """Replace all taints."""
        expected = expected_revision(request)
        with Placed(document_of(request)) as taints:
            set_taints(name, _list_of_objects(taints), **caller(request), expected=expected)
        return _taints(request, cluster_named(name))


def _list_of_objects(taints: object) -> list[dict[str, Any]]:
    if not isinstance(taints, list) or not all(isinstance(one, dict) for one in taints):
        raise Faults([Fault("", "wrong-type", "is not a list of taints", "a list of objects")])
    return taints


def _taints(request: Request, row: MemberCluster) -> Response:
    return answered(request, row.document["spec"].get("taints") or [], tag_of(row.revision))


class Cordon(Endpoint):
    """Keep new placements away."""

    @described("cordon_cluster", {200: ClusterManifest}, is_edit=True, has_tag=True)
    def post(self, request: Request, name: str) -> Response:
        """Cordon a cluster; what is placed there stays."""
        cordon([name], **caller(request), expected=expected_revision(request))
        return answer_cluster(request, cluster_named(name))


class Uncordon(Endpoint):
    """Let new placements come again."""

    @described("uncordon_cluster", {200: ClusterManifest}, is_edit=True, has_tag=True)
    def post(self, request: Request, name: str) -> Response:
        """Take the cordon away."""
        uncordon([name], **caller(request), expected=expected_revision(request))
        return answer_cluster(request, cluster_named(name))


class Heartbeat(Endpoint):
    """What a cluster's own agent says of it."""

    @described("report_heartbeat", {200: VerdictShape}, body=HeartbeatShape)
    def post(self, request: Request, name: str) -> Response:
        """Take in a heartbeat; a cluster that reports once is expected to go on."""
        with Placed(document_of(request)) as document:
            heartbeat = parse_heartbeat(document)
        usage = heartbeat.usage.to_plain() if heartbeat.usage else None
        observation = Observation(heartbeat.healthy, heartbeat.properties, usage)
        row = report(name, observation, **caller(request))
        return Response(VerdictShape(row).data)


class ClusterBindings(Endpoint):
    """What is placed on a cluster."""

    @described("list_cluster_bindings", {200: page_shape(BindingRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List what the cluster has, by placement; one that left may have something still."""
        wanted = asked(request, PageQuery)
        page = page_asked(bindings_on(name), wanted, order="owner", unique="owner")
        if not page.rows:
            cluster_named(name)
        return listed(request, rows_as(BindingRow, page.rows), page.after)
