"""Live hubs: add, check, change, remove; their streams, permissions and mirrored objects."""

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
from clusters.models import HubStream
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.hub_scope import in_hub
from fleetui.pagination import page_of
from fleetui.permissions import may_administer_clusters
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
    connection_of,
)
from placements.api.filters import (
    ConnectionQuery,
    HubActionQuery,
    PageQuery,
)
from placements.api.parsers import has_body, parse_body
from placements.api.schema import documented, operation, page_serializer
from placements.api.serializers import (
    ANY_OBJECT,
    AnyObject,
    CamelCaseSerializer,
    ConditionField,
    RowSerializer,
    names,
    number,
    text,
)
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
from placements.hubs.projection.unresolved import unresolved_counts, unresolved_objects
from placements.hubs.queries import (
    HubSummary,
    mirrored_object,
    streams_of,
    summaries_of,
    summary_of,
)
from placements.hubs.replay.queries import HubSide
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.queries import refusal_of_write
from placements.models import ReplayInputs

NO_NAMESPACE = "-"
_OBJECT = "objects/<named:group>/<named:kind>/<named:namespace>/<named:object_name>"


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
    reason = text("summary.reason", allow_blank=True)
    since = serializers.DateTimeField(source="summary.since", allow_null=True)
    age_seconds = serializers.FloatField(
        allow_null=True, help_text="Since the last event of the hub."
    )
    server_version = text("summary.hub.server_version", allow_blank=True)
    clock_offset_seconds = serializers.FloatField(
        source="summary.hub.clock_offset_seconds", allow_null=True
    )
    clusters = number("summary.clusters")
    placements = number("summary.placements")
    unresolved = serializers.IntegerField(
        help_text="Objects that are not shown, or not completely."
    )
    retry_at = serializers.DateTimeField(
        source="summary.retry_at",
        allow_null=True,
        help_text="When a required kind that fails is tried again.",
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

    resource = serializers.CharField()
    form = serializers.ChoiceField(["full", "metadata"])
    state = serializers.ChoiceField(
        ["idle", "listing", "watching", "absent", "forbidden", "failing"]
    )
    objects = number("object_count")

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
            "events_per_minute": {"help_text": "Since the counters were last written."}
        }


class HubStreamListSerializer(CamelCaseSerializer):
    """The streams of a hub, required ones first."""

    items = HubStreamSerializer(many=True)


class UnresolvedObjectSerializer(CamelCaseSerializer):
    """An object of the mirror that is not shown, or not completely."""

    group = serializers.CharField(allow_blank=True)
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
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
        age = one.age(now)
        document: dict[str, Any] = {"summary": one, "unresolved": counts.get(hub.pk, 0)}
        document["age_seconds"] = None if age is None else round(age.total_seconds(), 1)
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
            self._document(one, unresolved=counts)
            for one in summaries_of(page.rows, now=now)
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
        namespaces = tuple(body.pop("namespaces", ()))
        spec = HubSpec(**body, namespaces=namespaces)
        saved = save_hub(spec, wanted, **actor(request), confirmed=confirmed)
        document = self._document(
            summary_of(saved.owner, now=datetime.now(UTC)), saved.result
        )
        return Response(document, status=201)

    @documented("get_hub", HubSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get a hub with its state."""
        query_params(request)
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
            spec = spec_of(hub)
            saved = save_hub(
                spec,
                connection_fields(entered),
                **actor(request),
                confirmed=confirmed,
                replaces=True,
            )
            report = saved.result
        hub = change_hub(name, body, **actor(request))
        return Response(self._document(summary_of(hub, now=datetime.now(UTC)), report))

    @documented("delete_hub", None, status=204)
    def destroy(self, request: Request, name: str) -> Response:
        """Remove a hub with its credentials and its mirror; nothing is changed on the hub."""
        query_params(request)
        remove_hub(name, **actor(request))
        return Response(status=204)

    @operation(
        "check_hub",
        HubCheckSerializer,
        method="post",
        path="check",
        body=ConnectionInputSerializer,
    )
    def check(self, request: Request, name: str) -> Response:
        """Check the connection of a hub, or the one in the body, and what its account may do."""
        query_params(request)
        if has_body(request):
            hub = live_hub(name)
            entered = connection_of(request)
            now = datetime.now(UTC)
            parsed = parse_hub_input(entered, hub=hub, name=name, now=now)
            report = check_parsed(spec_of(hub), parsed)
        else:
            report = check_stored_hub(name)
        return Response(HubCheckSerializer(report).data)

    @operation("list_hub_streams", HubStreamListSerializer)
    def streams(self, request: Request, name: str) -> Response:
        """List the streams of a hub with their states and counters."""
        query_params(request)
        rows: list[HubStream] = list(streams_of(visible_hub(self.request.user, name)))
        return Response({"items": HubStreamSerializer(rows, many=True).data})

    @operation("list_hub_permissions", HubPermissionSerializer(many=True))
    def permissions(self, request: Request, name: str) -> Response:
        """List what the account of a hub may do, as the last check found it."""
        query_params(request)
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
            for one in ACTIONS.values():
                reason = refusal_of_write(hub, one, actor(request)["by"], fields)
                actions.append(
                    {
                        "action": one.name,
                        "role": str(one.role),
                        "allowed": not reason,
                        "reason": reason,
                    }
                )
        return Response(actions)

    @operation("get_hub_object", ANY_OBJECT, path=_OBJECT)
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
        query_params(request)
        hub = visible_hub(self.request.user, name)
        place = [
            "" if one == NO_NAMESPACE else one
            for one in (group, kind, namespace, object_name)
        ]
        manifest = mirrored_object(hub, *place)
        if manifest is None:
            raise Http404
        return Response(manifest)
