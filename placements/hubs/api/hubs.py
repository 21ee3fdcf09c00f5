"""Live hubs: add, check, change, remove, write to; their streams, permissions and mirrored objects."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.http import Http404
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.hub_queries import UnknownHubError, live_hub, visible_hub, visible_hubs
from clusters.hub_state import HubState
from clusters.models import HubStream, HubWrite
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.apimachinery.secrets import HubObject
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.pagination import page_of
from fleetui.permissions import Role, has_role, may_administer_clusters, teams_of
from placements.api.authentication import WRITING
from placements.api.base import (
    BaseViewSet,
    MayAdministerClusters,
    MayRead,
    Params,
    Rows,
    actor,
    page_response,
    paged_list,
    query_params,
)
from placements.api.connections import (
    ConnectionCheckSerializer,
    ConnectionInputSerializer,
    ConnectionSerializer,
    connection_document,
    connection_fields,
)
from placements.api.filters import (
    ConnectionQuery,
    HubActionQuery,
    HubWriteQuery,
    NoQuery,
    PageQuery,
    SendWriteQuery,
)
from placements.api.parsers import has_body, object_in, parse_body, read_document
from placements.api.problems import FieldErrorSerializer
from placements.api.schema import documented, operation, page_serializer
from placements.api.serializers import (
    ANY_OBJECT,
    AnyObject,
    CamelCaseSerializer,
    ConditionField,
    RowSerializer,
    fields_of,
    names,
    text,
)
from placements.hubs.api.objects import execute, response_to_sent
from placements.hubs.connections.operations import (
    HubSpec,
    change_hub,
    check_parsed,
    check_stored_hub,
    parse_hub_input,
    remove_hub,
    save_hub,
    spec_of,
)
from placements.hubs.explain.agreements import Agreement, agreement_document
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.projection.operations import unresolved_counts, unresolved_objects
from placements.hubs.queries import (
    HubSummary,
    mirrored_object,
    streams_of,
    summaries_of,
    summary_of,
    writes_of,
)
from placements.hubs.replay.observed_decisions import HubSide, hub_side_of
from placements.hubs.writing.catalogue import ACTIONS, action_named, refusal_of_write
from placements.hubs.writing.operations import ResultDifference, WritePreview
from placements.hubs.writing.planning import WritePlan
from placements.models import ReplayInputs
from placements.services.decisions.records import cycles_of, recorded

NO_NAMESPACE = "-"


@fields_of(
    HubSummary,
    "name",
    "title",
    "kind",
    "mode",
    "identity",
    "namespaces",
    "paused",
    "state",
    "reason",
    "since",
    "age_seconds",
    "server_version",
    "clock_offset_seconds",
    "clusters",
    "placements",
    "unresolved",
    "retry_at",
    "connection",
    within="summary",
    retry_at="When a required kind that fails is tried again.",
)
class HubSerializer(CamelCaseSerializer):
    """A live hub, with its state as of now."""

    name = text("summary.hub.name")
    title = text("summary.hub.title")
    kind = text(
        "summary.hub.kind", help_text=f"The API of the hub: {', '.join(HUB_KINDS)}."
    )
    mode = serializers.ChoiceField(HubMode.values, source="summary.hub.mode")
    identity = serializers.ChoiceField(
        HubIdentity.values, source="summary.hub.identity"
    )
    namespaces = names(source="summary.hub.namespaces", help_text="Empty: all.")
    paused = serializers.BooleanField(source="summary.hub.is_paused")
    state = serializers.ChoiceField(list(HubState), source="summary.state")
    age_seconds = serializers.FloatField(
        allow_null=True, help_text="Since the last event of the hub."
    )
    server_version = text("summary.hub.server_version", allow_blank=True)
    clock_offset_seconds = serializers.FloatField(
        source="summary.hub.clock_offset_seconds", allow_null=True
    )
    unresolved = serializers.IntegerField(
        help_text="Objects that are not shown, or not completely."
    )
    connection = ConnectionSerializer(
        required=False, help_text="Only for cluster administrators."
    )


class HubSettingsSerializer(CamelCaseSerializer):
    """What may be changed of a hub without its connection."""

    title = serializers.CharField(required=False, allow_blank=True)
    mode = serializers.CharField(required=False)
    identity = serializers.CharField(required=False)
    namespaces = serializers.ListField(child=serializers.CharField(), required=False)


class HubChangeSerializer(HubSettingsSerializer):
    """Changes of a hub; with a new connection or new credentials it is checked first."""

    paused = serializers.BooleanField(required=False)
    connection = ConnectionInputSerializer(required=False)


class NewHubSerializer(HubSettingsSerializer):
    """A hub to connect."""

    name = serializers.CharField()
    kind = serializers.CharField(required=False)
    connection = ConnectionInputSerializer()


class HubStreamSerializer(RowSerializer):
    """The list and watch of one kind."""

    class Meta:
        model = HubStream
        fields = (
            "resource",
            "version",
            "kind",
            "namespace",
            "form",
            "is_required",
            "state",
            "objects",
            "events",
            "events_per_minute",
            "bytes",
            "relists",
            "skipped",
            "failures",
            "listed_at",
            "heard_at",
            "retry_at",
            "error",
        )
        extra_kwargs = {
            "events_per_minute": {"help_text": "Since the counters were last written."},
            "objects": {"source": "object_count"},
        }


class HubStreamListSerializer(CamelCaseSerializer):
    """The streams of a hub, required ones first."""

    items = HubStreamSerializer(many=True)


@fields_of(HubObject, "group", "kind", "namespace", "name", "paths", "reason")
class UnresolvedObjectSerializer(CamelCaseSerializer):
    """An object of the mirror that is not shown, or not completely."""

    paths = serializers.ListField(
        child=serializers.CharField(),
        source="not_understood",
        help_text="What is not understood.",
    )
    reason = serializers.CharField(
        allow_blank=True,
        source="projection_error",
        help_text="Why it is not shown; empty if it is.",
    )


class HubPermissionSerializer(CamelCaseSerializer):
    """What the account may do with a kind; null where the hub does not say it."""

    resource = serializers.CharField()
    is_required = serializers.BooleanField()
    verbs = serializers.DictField(child=serializers.BooleanField(allow_null=True))


class HubActionSerializer(CamelCaseSerializer):
    """An action on a live hub, and whether the caller may do it now, as far as the console knows."""

    action = serializers.CharField()
    role = serializers.CharField()
    allowed = serializers.BooleanField()
    reason = serializers.CharField(
        allow_blank=True, help_text="Why not, and who changes that."
    )


class HubCheckSerializer(ConnectionCheckSerializer):
    """The check of a hub: its steps, and the permissions as a table."""

    permissions = HubPermissionSerializer(many=True)


class HubDecisionSerializer(CamelCaseSerializer):
    """What a live hub decided for a placement, and where a replay differs."""

    placement = serializers.CharField()
    decision = serializers.CharField(allow_null=True, help_text="The replay.")
    agreement = serializers.ChoiceField(list(Agreement))
    message = serializers.CharField(help_text="What the agreement means.")
    note = serializers.CharField(
        allow_blank=True, help_text="Why nothing could be replayed."
    )
    inputs = serializers.ChoiceField(ReplayInputs.values)
    fleet_version = serializers.IntegerField(allow_null=True)
    policy_snapshot = serializers.CharField(allow_blank=True)
    observed_generation = serializers.IntegerField(allow_null=True)
    condition = ConditionField(allow_null=True)
    differences_count = serializers.IntegerField()
    hub_at = serializers.DateTimeField(allow_null=True)
    seen_at = serializers.DateTimeField()
    decisions = serializers.ListField(
        child=AnyObject(), help_text="As the hub wrote them at first."
    )
    differences = serializers.ListField(child=AnyObject(), help_text="The first 200.")

    def to_representation(self, instance: HubSide) -> dict[str, Any]:
        """Return the same document as the page."""
        return agreement_document(instance)


class HubViewSet(BaseViewSet):
    """The live hubs."""

    not_found = UnknownHubError

    def get_permissions(self) -> list[BasePermission]:
        reads = self.action in (
            "list",
            "retrieve",
            "streams",
            "permissions",
            "actions",
            "mirrored",
            "unresolved",
        )
        return [MayRead()] if reads else [MayAdministerClusters()]

    def _document(
        self,
        one: HubSummary,
        report: Any = None,
        unresolved: Mapping[int, int] | None = None,
    ) -> dict[str, Any]:
        now = datetime.now(UTC)
        hub = one.hub
        counts = (
            unresolved_counts([hub.pk], now=now) if unresolved is None else unresolved
        )
        document = {
            "summary": one,
            "unresolved": counts.get(hub.pk, 0),
            "age_seconds": one.age_seconds(now),
        }
        shown: dict[str, Any] = HubSerializer(document).data
        if may_administer_clusters(self.request.user):
            shown["connection"] = connection_document(hub, report)
        return shown

    @documented("list_hubs", page_serializer(HubSerializer), query=PageQuery)
    def list(self, request: Request) -> Response:
        """List the live hubs."""
        params = query_params(request, PageQuery)
        now = datetime.now(UTC)
        hubs = visible_hubs(request.user)
        page = page_of(
            hubs, order="name", size=params["limit"], after=params.get("after")
        )
        counts = unresolved_counts([hub.pk for hub in page.rows], now=now)
        items = [
            self._document(summary, unresolved=counts)
            for summary in summaries_of(page.rows, now=now)
        ]
        return page_response(request, items, page.after)

    @paged_list(
        "list_unresolved_objects", UnresolvedObjectSerializer, order="id", unique="id"
    )
    def unresolved(self, params: Params, name: str) -> Rows:
        """List the objects of a hub that are not shown, or not completely, and why."""
        with in_hub(visible_hub(self.request.user, name).pk):
            return unresolved_objects(now=datetime.now(UTC))

    @documented(
        "create_hub",
        HubSerializer,
        status=201,
        body=NewHubSerializer,
        query=ConnectionQuery,
        problems=(409,),
    )
    def create(self, request: Request) -> Response:
        """Check the connection of a hub and add it; it is read from then on."""
        confirmed = "confirm" in query_params(request, ConnectionQuery)
        body = parse_body(request, NewHubSerializer)
        wanted = connection_fields(body.pop("connection"))
        spec = HubSpec(**body, namespaces=tuple(body.pop("namespaces", ())))
        saved = save_hub(spec, wanted, **actor(request), confirmed=confirmed)
        document = self._document(
            summary_of(saved.owner, now=datetime.now(UTC)), saved.result
        )
        return Response(document, status=201)

    @documented("get_hub", HubSerializer, query=NoQuery)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get a hub with its state."""
        summary = summary_of(
            visible_hub(self.request.user, name), now=datetime.now(UTC)
        )
        return Response(self._document(summary))

    @documented(
        "update_hub",
        HubSerializer,
        body=HubChangeSerializer,
        query=ConnectionQuery,
        problems=(409,),
    )
    def partial_update(self, request: Request, name: str) -> Response:
        """Change a hub, pause or resume it, or set another connection or other credentials."""
        confirmed = "confirm" in query_params(request, ConnectionQuery)
        body = parse_body(request, HubChangeSerializer)
        entered = body.pop("connection", None)
        report = None
        hub = live_hub(name)
        if entered is not None:
            saved = save_hub(
                spec_of(hub),
                connection_fields(entered),
                **actor(request),
                confirmed=confirmed,
                replaces=True,
            )
            report = saved.result
        hub = change_hub(name, body, **actor(request))
        return Response(self._document(summary_of(hub, now=datetime.now(UTC)), report))

    @documented("delete_hub", None, status=204, query=NoQuery)
    def destroy(self, request: Request, name: str) -> Response:
        """Remove a hub with its credentials and its mirror; nothing is changed on the hub."""
        remove_hub(name, **actor(request))
        return Response(status=204)

    @operation(
        "check_hub",
        HubCheckSerializer,
        method="post",
        path="check",
        body=ConnectionInputSerializer,
        query=NoQuery,
    )
    def check(self, request: Request, name: str) -> Response:
        """Check the connection of a hub, or the one in the body, and what its account may do."""
        if has_body(request):
            hub = live_hub(name)
            entered = connection_fields(parse_body(request, ConnectionInputSerializer))
            parsed = parse_hub_input(entered, hub=hub, name=name, now=datetime.now(UTC))
            report = check_parsed(spec_of(hub), parsed)
        else:
            report = check_stored_hub(name)
        return Response(HubCheckSerializer(report).data)

    @operation("list_hub_streams", HubStreamListSerializer, query=NoQuery)
    def streams(self, request: Request, name: str) -> Response:
        """List the streams of a hub with their states and counters."""
        rows: list[HubStream] = list(streams_of(visible_hub(self.request.user, name)))
        return Response({"items": HubStreamSerializer(rows, many=True).data})

    @operation(
        "list_hub_permissions", HubPermissionSerializer(many=True), query=NoQuery
    )
    def permissions(self, request: Request, name: str) -> Response:
        """List what the account of a hub may do, as the last check found it."""
        return Response(
            visible_hub(self.request.user, name).found.get("permissions", [])
        )

    @operation("list_hub_actions", HubActionSerializer(many=True), query=HubActionQuery)
    def actions(self, request: Request, name: str) -> Response:
        """List what the caller may do on a hub, or with one object of it; without a request to the hub."""
        fields = query_params(request, HubActionQuery)
        hub = visible_hub(self.request.user, name)
        actions = []
        with in_hub(hub.pk):
            for action in ACTIONS.values():
                reason = refusal_of_write(hub, action, actor(request)["by"], fields)
                actions.append(
                    {
                        "action": action.name,
                        "role": str(action.role),
                        "allowed": not reason,
                        "reason": reason,
                    }
                )
        return Response(actions)

    @operation(
        "get_hub_object",
        ANY_OBJECT,
        path="objects/<named:group>/<named:kind>/<named:namespace>/<named:object_name>",
        query=NoQuery,
    )
    def mirrored(
        self,
        request: Request,
        name: str,
        group: str,
        kind: str,
        namespace: str,
        object_name: str,
    ) -> Response:
        """Get an object as the mirror has it; `-` is no group and no namespace."""
        hub = visible_hub(self.request.user, name)
        place = [
            "" if one == NO_NAMESPACE else one
            for one in (group, kind, namespace, object_name)
        ]
        manifest = mirrored_object(hub, *place)
        if manifest is None:
            raise Http404
        return Response(manifest)


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


@fields_of(ResultDifference, by_hub="Added by the hub: a default, or a webhook.")
class ResultDifferenceSerializer(CamelCaseSerializer):
    """A field that the write changes."""


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


class MayWriteToHub(BasePermission):
    """Some action of the catalogue is for operators or approvers of the hub; each one checks its own role."""

    message = "Writing to a hub requires the role operator, or approver to approve."

    def has_permission(self, request: Request, view: Any) -> bool:
        hub = (
            visible_hubs(request.user).filter(name=view.kwargs.get("name", "")).first()
        )
        with in_hub(hub.pk if hub else LOCAL_HUB):
            return any(
                has_role(request.user, role) or teams_of(request.user, role)
                for role in (Role.OPERATOR, Role.APPROVER)
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


class DecisionOnHubViewSet(BaseViewSet):
    """Decisions of live hubs."""

    @documented("get_decision_on_hub", HubDecisionSerializer, query=NoQuery)
    def retrieve(self, request: Request, decision: str) -> Response:
        """Get what the live hub decided, and how the replay agrees with it."""
        row = (
            cycles_of(recorded(decision)[0]).filter(hub_decision__isnull=False).first()
        )
        side = hub_side_of(row) if row else None
        if side is None:
            raise Http404
        return Response(HubDecisionSerializer(side).data)
