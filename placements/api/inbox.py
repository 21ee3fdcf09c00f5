"""The inbox: what a user should act on, in all hubs that they may see."""

from datetime import UTC, datetime

from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, MayRead, query_params
from placements.api.filters import InboxQuery
from placements.api.schema import documented
from placements.api.serializers import CamelCaseSerializer
from placements.engine.problems import Noun, ProblemLevel
from placements.models import ProblemKind
from placements.services.problems.inbox import inbox


class InboxItemSerializer(CamelCaseSerializer):
    """Something that needs attention."""

    kind = serializers.CharField(help_text=f"One of {', '.join(ProblemKind.values)}.")
    hub = serializers.CharField(help_text="Its hub; `local` is the hub of the console.")
    noun = serializers.ChoiceField(list(Noun), help_text="What the name is of.")
    name = serializers.CharField(help_text="Of a rollout with its number: `web/3`.")
    level = serializers.ChoiceField(list(ProblemLevel))
    message = serializers.CharField()
    since = serializers.DateTimeField()
    path = serializers.CharField(help_text="The address of its page.")
    following = serializers.ListField(
        child=serializers.CharField(),
        help_text="The objects whose problems follow from it.",
    )


class InboxCountSerializer(CamelCaseSerializer):
    """How many items of a kind there are."""

    kind = serializers.CharField()
    count = serializers.IntegerField()


class InboxSerializer(CamelCaseSerializer):
    """The items by kind, the oldest first; at most 200 of each kind."""

    items = InboxItemSerializer(many=True)
    counts = InboxCountSerializer(many=True)


class InboxViewSet(BaseViewSet):
    def get_permissions(self) -> list[BasePermission]:
        return [MayRead()]

    @documented("get_inbox", InboxSerializer, query=InboxQuery)
    def retrieve(self, request: Request) -> Response:
        """List the inbox of all hubs that you may see."""
        params = query_params(request, InboxQuery)
        kinds = (
            [ProblemKind(params["kind"])] if params.get("kind") else tuple(ProblemKind)
        )
        groups = inbox(
            request.user, now=datetime.now(UTC), hub=params["hub"], kinds=kinds
        )
        items = [
            {
                "kind": item.problem.kind,
                "hub": item.hub,
                "noun": item.problem.noun,
                "name": item.problem.name,
                "level": item.problem.level,
                "message": item.problem.message,
                "since": item.problem.since,
                "path": item.url,
                "following": item.following,
            }
            for group in groups
            for item in group.items
        ]
        counts = [
            {"kind": group.kind, "count": group.count}
            for group in groups
            if group.kind in kinds
        ]
        return Response(InboxSerializer({"items": items, "counts": counts}).data)
