"""Member clusters: manifests, actions, heartbeat, bindings, removals that wait."""

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.drivers.base import Observation
from clusters.filters import (
    ClusterFilter,
    closed_filters,
    clusters_matching,
)
from clusters.manifest import parse_heartbeat
from clusters.models import MemberCluster
from clusters.operations.edit import UnknownClusterError
from clusters.operations.heartbeat import report
from clusters.operations.join import ClusterSpec, put_cluster
from clusters.queries import status_of
from fleetui.permissions import by_operation, may_administer_clusters
from placements.api.base import (
    BaseViewSet,
    MayAct,
    Params,
    Rows,
    actor,
    command_of,
    page_response,
    paged_list,
    query_params,
    route_of,
)
from placements.api.filters import ClusterQuery, NoQuery, RemovalQuery
from placements.api.parsers import (
    PATCH_PARSERS,
    check_objects,
    object_in,
    parse_body,
    read_document,
)
from placements.api.preconditions import etag, etag_response, expected_revision
from placements.api.schema import documented, documented_put, operation, page_serializer
from placements.api.serializers import (
    CLUSTER_MANIFEST,
    LABEL_PATCH,
    LABELS,
    BindingSerializer,
    CamelCaseSerializer,
    ClusterSerializer,
    EligibilitySerializer,
    HeartbeatSerializer,
    TaintSerializer,
    Text,
    fields_of,
)
from placements.services.actions import ACTIONS, ActionKind
from placements.services.filters import bindings_on, placements_on
from placements.services.fleet.queries import in_order, stale_on
from placements.services.rollouts.removals import (
    RemovalToDecide,
    confirm_removal,
    keep_objects,
    waiting_removals,
)

TAINTS = TaintSerializer(many=True)
_LABELS = ACTIONS[ActionKind.CLUSTER, "labels"]
_TAINTS = ACTIONS[ActionKind.CLUSTER, "taints"]


def _action(name: str, operation_id: str, description: str) -> Any:
    action = ACTIONS[ActionKind.CLUSTER, name]

    def method(self: Any, request: Request, name: str) -> Response:
        action.run(name, **actor(request), expected=expected_revision(request))
        result: Response = self.manifest_response()
        return result

    method.__name__, method.__doc__ = name, description
    describe = operation(
        operation_id,
        CLUSTER_MANIFEST,
        is_edit=True,
        has_tag=True,
        method="post",
        route=route_of(action),
        commands=[command_of(action)],
    )
    return describe(method)


class ClusterViewSet(BaseViewSet):
    model = MemberCluster
    not_found = UnknownClusterError

    def get_permissions(self) -> Sequence[Any]:
        """Return the permission of the action `leave` for the deletion of a document."""
        if self.action == "destroy":
            return [MayAct(ACTIONS[ActionKind.CLUSTER, "leave"])]
        return super().get_permissions()

    def manifest_and_status(self, row: MemberCluster) -> tuple[Any, dict[str, Any]]:
        return row.document, status_of(
            row, has_address=may_administer_clusters(self.request.user)
        )

    @paged_list(
        "list_clusters",
        ClusterSerializer,
        query=ClusterQuery,
        context=lambda rows: {
            "placements": placements_on(row.name for row in rows),
            "outdated": stale_on([row.name for row in rows]),
        },
    )
    def list(self, params: Params) -> Rows:
        """List clusters."""
        wanted = ClusterFilter(
            params["q"], tuple(params["label"]), **closed_filters(params)
        )
        rows, params["order"], _ = in_order(clusters_matching(wanted), params["order"])
        return rows

    @documented("get_cluster", CLUSTER_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a cluster with its status."""
        return self.manifest_response()

    @documented_put("put_cluster", CLUSTER_MANIFEST)
    def update(self, request: Request, name: str) -> Response:
        """Create or update a member cluster; the same manifest again changes nothing."""
        return self.put_manifest(
            lambda document, **how: put_cluster(ClusterSpec(document), **how)
        )

    @documented(
        "delete_cluster",
        CLUSTER_MANIFEST,
        status=202,
        is_edit=True,
        commands=[command_of(ACTIONS[ActionKind.CLUSTER, "leave"])],
    )
    def destroy(self, request: Request, name: str) -> Response:
        """Remove a cluster from the fleet; its placements stay on it."""
        ACTIONS[ActionKind.CLUSTER, "leave"].run(
            name, **actor(request), expected=expected_revision(request)
        )
        return self.manifest_response(status=202)

    @operation(
        "get_cluster_labels",
        LABELS,
        has_tag=True,
        path="labels",
        route={"parser_classes": PATCH_PARSERS, **route_of(_LABELS)},
    )
    def labels(self, request: Request, name: str) -> Response:
        """Get the labels of a cluster."""
        row = self.get_object()
        return etag_response(
            request, row.document["metadata"].get("labels") or {}, etag(row.revision)
        )

    @documented("put_cluster_labels", LABELS, body=LABELS, is_edit=True, has_tag=True)
    @labels.mapping.put
    def put_labels(self, request: Request, name: str) -> Response:
        """Replace the labels of a cluster."""
        expected = expected_revision(request)
        with read_document(request) as document:
            labels = object_in(document, what="an object of labels")
            _LABELS.perform(
                name, put=labels, replaces=True, **actor(request), expected=expected
            )
        return self.labels(request, name)

    @documented(
        "patch_cluster_labels",
        LABELS,
        body=LABEL_PATCH,
        media_types=("application/merge-patch+json", "application/json"),
        is_edit=True,
        has_tag=True,
    )
    @labels.mapping.patch
    def patch_labels(self, request: Request, name: str) -> Response:
        """Set labels, and remove those that are null (a merge patch)."""
        expected = expected_revision(request)
        with read_document(request) as document:
            patch = object_in(document, what="a merge patch of labels")
            put = {key: value for key, value in patch.items() if value is not None}
            _LABELS.perform(
                name,
                put=put,
                remove=patch.keys() - put.keys(),
                **actor(request),
                expected=expected,
            )
        return self.labels(request, name)

    @operation(
        "get_cluster_taints",
        TAINTS,
        has_tag=True,
        route=route_of(_TAINTS),
    )
    def taints(self, request: Request, name: str) -> Response:
        """Get the taints of a cluster."""
        row = self.get_object()
        return etag_response(
            request, row.document["spec"].get("taints") or [], etag(row.revision)
        )

    @documented("put_cluster_taints", TAINTS, body=TAINTS, is_edit=True, has_tag=True)
    @taints.mapping.put
    def put_taints(self, request: Request, name: str) -> Response:
        """Replace the taints of a cluster."""
        expected = expected_revision(request)
        with read_document(request) as taints:
            check_objects(taints, what="a list of taints")
            _TAINTS.perform(
                name, add=taints, replaces=True, **actor(request), expected=expected
            )
        return self.taints(request, name)

    cordon = _action(
        "cordon", "cordon_cluster", "Cordon a cluster; its placements stay."
    )
    uncordon = _action("uncordon", "uncordon_cluster", "Uncordon a cluster.")

    @operation(
        "report_heartbeat",
        EligibilitySerializer,
        body=HeartbeatSerializer,
        method="post",
    )
    def heartbeat(self, request: Request, name: str) -> Response:
        """Report a heartbeat; from the first one on, the cluster has to report regularly."""
        with read_document(request) as document:
            heartbeat = parse_heartbeat(document)
        usage = heartbeat.usage.to_plain() if heartbeat.usage else None
        observation = Observation(heartbeat.healthy, heartbeat.properties, usage)
        return Response(
            EligibilitySerializer(report(name, observation, **actor(request))).data
        )

    @paged_list(
        "list_cluster_bindings", BindingSerializer, order="owner", unique="owner"
    )
    def bindings(self, params: Params, name: str) -> Rows:
        """List the bindings of a cluster by placement; one that left may still have some."""
        rows = bindings_on(name)
        if not rows.exists():
            self.get_object()
        return rows


CONFIRM, KEEP = "confirm", "keep"
MOST = 500


@fields_of(
    RemovalToDecide,
    "cluster",
    "placement",
    "reason",
    "since",
    "is_orphan",
    sources={"cluster": "cluster_name", "placement": "placement_name"},
    reason="Why it is not done without a person.",
    is_orphan="No placement wants the objects there; otherwise they are of another version than its.",
)
class RemovalSerializer(CamelCaseSerializer):
    """A removal that no user requested, which waits for a person."""

    since = serializers.DateTimeField(allow_null=True)


class RemovalDecisionSerializer(CamelCaseSerializer):
    """What to do with the objects of a placement on the cluster."""

    placement = Text(max_length=253)
    decision = serializers.ChoiceField(
        [CONFIRM, KEEP],
        help_text="`confirm` removes the objects; `keep` leaves an orphan there for good.",
    )


REMOVALS = page_serializer(RemovalSerializer)


def _command(decision: str, message: str, words: str) -> dict[str, Any]:
    return {
        "words": f"removals {decision}",
        "help": words,
        "message": message,
        "body": {"decision": decision},
    }


class RemovalViewSet(BaseViewSet):
    model = MemberCluster
    not_found = UnknownClusterError
    labels_of = staticmethod(by_operation)

    @documented("list_removals", REMOVALS, query=RemovalQuery)
    def waiting(self, request: Request) -> Response:
        """List the removals that wait for a person, at most 500."""
        rows = waiting_removals(
            query_params(request, RemovalQuery)["cluster"], most=MOST
        )
        return page_response(request, RemovalSerializer(rows, many=True).data, None)

    @operation("list_cluster_removals", RemovalSerializer(many=True), query=NoQuery)
    def removals(self, request: Request, name: str) -> Response:
        """List the removals from a cluster that wait for a person, at most 500."""
        return _waiting(self.get_object().name)

    @documented(
        "decide_cluster_removal",
        RemovalSerializer(many=True),
        body=RemovalDecisionSerializer,
        problems=(409,),
        commands=[
            _command(
                CONFIRM,
                "Removal of {value} from {name} confirmed",
                "Remove the objects",
            ),
            _command(
                KEEP,
                "The objects of {value} stay on {name}",
                "Leave an orphan for good",
            ),
        ],
    )
    @removals.mapping.post
    def decide(self, request: Request, name: str) -> Response:
        """Confirm a removal that waits, or keep the objects; the answer is what still waits."""
        cluster = self.get_object().name
        chosen = parse_body(request, RemovalDecisionSerializer)
        decide = confirm_removal if chosen["decision"] == CONFIRM else keep_objects
        decide(cluster, chosen["placement"], **actor(request))
        return _waiting(cluster)


def _waiting(cluster: str) -> Response:
    return Response(
        RemovalSerializer(waiting_removals(cluster, most=MOST), many=True).data
    )
