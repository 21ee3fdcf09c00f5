"""Writes to live hubs: preview or send one of the catalogue, and list what was requested."""

from typing import Any

from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.hub_queries import UnknownHubError, visible_hub, visible_hubs
from clusters.models import HubWrite
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.permissions import Role, has_role, teams_of
from placements.api.authentication import WRITING
from placements.api.base import (
    BaseViewSet,
    MayRead,
    Params,
    Rows,
    paged_list,
    query_params,
)
from placements.api.filters import HubWriteQuery, SendWriteQuery
from placements.api.parsers import object_in, read_document
from placements.api.problems import FieldErrorSerializer
from placements.api.schema import documented
from placements.api.serializers import (
    ANY_OBJECT,
    CamelCaseSerializer,
    RowSerializer,
    names,
)
from placements.hubs.api.objects import execute, response_to_sent
from placements.hubs.queries import writes_of
from placements.hubs.writing.catalogue import ACTIONS, action_named
from placements.hubs.writing.operations import WritePreview
from placements.hubs.writing.planning import WritePlan


class HubWriteSerializer(RowSerializer):
    """A request that a user had sent to the hub, and its outcome."""

    class Meta:
        model = HubWrite
        fields = (
            "id",
            "at",
            "requested_by",
            "verb",
            "group",
            "kind",
            "namespace",
            "name",
            "subresource",
            "body",
            "precondition",
            "state",
            "status",
            "answer",
            "resource_version_after",
            "request_id",
        )
        extra_kwargs = {
            "verb": {"help_text": "create, apply, patch or delete."},
            "body": {"help_text": "Without the values of Secrets."},
            "precondition": {"help_text": "The resourceVersion that it named."},
            "status": {"help_text": "The status of the response of the hub."},
        }


_FIELD_KINDS: dict[str, type[serializers.Field[Any, Any, Any, Any]]] = {
    **dict.fromkeys(("manifest", "base", "patch", "labels"), serializers.JSONField),
    "taints": serializers.JSONField,
    "numberOfClusters": serializers.IntegerField,
}


class NewHubWriteSerializer(CamelCaseSerializer):
    """An action with its fields; which ones it takes is in the reference."""

    action = serializers.ChoiceField(list(ACTIONS))
    uid = serializers.CharField(
        required=False, help_text="Of the object that is meant."
    )
    resource_version = serializers.CharField(
        required=False, help_text="The version of that object."
    )

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        for action in ACTIONS.values():
            for name in (*action.required, *action.optional):
                kind = _FIELD_KINDS.get(name, serializers.CharField)
                fields.setdefault(name, kind(required=False))
        return fields


class ResultDifferenceSerializer(CamelCaseSerializer):
    """A field that the write changes."""

    path = serializers.CharField()
    before = serializers.CharField(allow_blank=True)
    after = serializers.CharField(allow_blank=True)
    by_hub = serializers.BooleanField(
        help_text="Added by the hub: a default, or a webhook."
    )


class WritePreviewSerializer(CamelCaseSerializer):
    """What the hub would make of a write."""

    unchanged = serializers.BooleanField(source="is_unchanged")
    notes = names(source="plan.notes")
    gitops = names(
        help_text="What shows that a GitOps tool manages the object and reverts changes."
    )
    differences = ResultDifferenceSerializer(many=True)
    body = serializers.JSONField(
        source="request.stored_body",
        allow_null=True,
        help_text="Without the values of Secrets.",
    )
    result = serializers.JSONField(allow_null=True)
    causes = FieldErrorSerializer(many=True)


_ROLES = (Role.OPERATOR, Role.APPROVER)


class MayWriteToHub(BasePermission):
    """Some action of the catalogue is for operators or approvers of the hub; each one checks its own role."""

    message = "Writing to a hub requires the role operator, or approver to approve."

    def has_permission(self, request: Request, view: Any) -> bool:
        hub = (
            visible_hubs(request.user).filter(name=view.kwargs.get("name", "")).first()
        )
        with in_hub(hub.pk if hub else LOCAL_HUB):
            return any(
                has_role(request.user, one) or teams_of(request.user, one)
                for one in _ROLES
            )


class HubWriteViewSet(BaseViewSet):
    """What people had sent to a live hub."""

    not_found = UnknownHubError
    dry_run_action = "create"

    def get_permissions(self) -> list[BasePermission]:
        return [MayRead()] if self.action == "list" else [MayWriteToHub()]

    @paged_list(
        "list_hub_writes",
        HubWriteSerializer,
        query=HubWriteQuery,
        order="-at",
        unique="id",
    )
    def list(self, params: Params, name: str) -> Rows:
        """List the writes to a hub, the newest first."""
        filters = {
            key: params[key] for key in ("state", "kind", "object") if params.get(key)
        }
        return writes_of(
            visible_hub(self.request.user, name), requested_by=params["by"], **filters
        )

    @documented(
        "create_hub_write",
        WritePreviewSerializer,
        also={201: ANY_OBJECT, 202: ANY_OBJECT},
        body=NewHubWriteSerializer,
        query=SendWriteQuery,
        is_costly=True,
        problems=(409,),
        scopes=WRITING,
    )
    def create(self, request: Request, name: str) -> Response:
        """Preview an action by a dry run of the hub, or have it sent after one."""
        params = query_params(request, SendWriteQuery)
        hub = visible_hub(self.request.user, name)
        with read_document(request) as data:
            fields = dict(object_in(data, what="an action"))
            action = action_named(fields.pop("action", None))
            done = execute(request, hub, action.name, fields, params)
        if isinstance(done, WritePreview):
            return Response(WritePreviewSerializer(done).data)
        if done is None:
            nothing = WritePreview(action, WritePlan(None))
            return Response(WritePreviewSerializer(nothing).data)
        return response_to_sent(done)
