"""The inbox: what a user should act on, in all hubs that they may see."""

from dataclasses import asdict
from datetime import UTC, datetime

from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, MayRead, query_params
from placements.api.filters import InboxQuery
from placements.api.schema import documented
from placements.api.serializers import CamelCaseSerializer
from placements.services.hubs.inbox import MOST, InboxKind, inbox, reader_of

PAGES = (
    "staged-run",
    "rollout",
    "placement",
    "decision",
    "placement-drift",
    "cluster-removals",
    "cluster-connection",
    "hub",
)


class InboxItemSerializer(CamelCaseSerializer):
    """Something that needs attention."""

    kind = serializers.CharField(help_text=f"One of {', '.join(InboxKind)}.")
    hub = serializers.CharField(help_text="Its hub; `local` is the hub of the console.")
    noun = serializers.ChoiceField(PAGES, help_text="What the name is of.")
    name = serializers.CharField()
    number = serializers.IntegerField(allow_null=True, help_text="Of a rollout.")
    decision = serializers.CharField(allow_blank=True, help_text="Of a disagreement.")
    at = serializers.DateTimeField(allow_null=True, help_text="Since when; of credentials, the expiry.")
    level = serializers.CharField()
    message = serializers.CharField()


class InboxCountSerializer(CamelCaseSerializer):
    """How many items of a kind there are."""

    kind = serializers.CharField()
    count = serializers.IntegerField()


class InboxSerializer(CamelCaseSerializer):
    """The items by kind, the oldest first; at most 200 of each kind."""

    items = InboxItemSerializer(many=True)
    counts = InboxCountSerializer(many=True)


class InboxViewSet(BaseViewSet):
    """What people should act on."""

    def get_permissions(self) -> list[BasePermission]:
        return [MayRead()]

    @documented("get_inbox", InboxSerializer, query=InboxQuery)
    def retrieve(self, request: Request) -> Response:
        """List the inbox of all hubs that you may see."""
        params = query_params(request, InboxQuery)
        kinds = [InboxKind(params["kind"])] if params.get("kind") else tuple(InboxKind)
        groups = inbox(reader_of(request.user, now=datetime.now(UTC), hub=params["hub"]), kinds=kinds)
        items = [
            {
                **{key: value for key, value in asdict(one).items() if key != "facts"},
                "noun": one.facts["page"],
                "number": one.facts.get("number"),
                "decision": one.facts.get("decision", ""),
                "level": one.level,
                "message": one.message,
            }
            for group in groups
            for one in group.items[:MOST]
        ]
        counts = [{"kind": group.kind, "count": group.count} for group in groups]
        return Response(InboxSerializer({"items": items, "counts": counts}).data)
