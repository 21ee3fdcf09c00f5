"""Removals from clusters that wait for a person."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import MemberCluster
from clusters.operations.edit import UnknownClusterError
from fleetui.permissions import by_operation
from placements.api.base import BaseViewSet, actor, page_response, query_params
from placements.api.filters import NoQuery, RemovalQuery
from placements.api.parsers import parse_body
from placements.api.schema import documented, operation, page_serializer
from placements.api.serializers import CamelCaseSerializer, Text
from placements.services.rollouts.removals import (
    confirm_removal,
    keep_objects,
    waiting_removals,
)

CONFIRM, KEEP = "confirm", "keep"
MOST = 500


class RemovalSerializer(CamelCaseSerializer):
    """A removal that no user requested, which waits for a person."""

    cluster = serializers.CharField(source="cluster_name")
    placement = serializers.CharField(source="placement_name")
    reason = serializers.CharField(help_text="Why it is not done without a person.")
    since = serializers.DateTimeField(allow_null=True)
    is_orphan = serializers.BooleanField(
        help_text="No placement wants the objects there; otherwise they are of another version than its."
    )


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
