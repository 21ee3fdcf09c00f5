"""Disruption: drains, restoring and fault injection of clusters; evictions and budgets of placements."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.drivers.simulated.state import SimulatedFault
from clusters.models import MemberCluster
from clusters.operations.edit import UnknownClusterError, faults_of
from fleetui.pagination import page_of
from placements.api.base import (
    BaseViewSet,
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
from placements.api.filters import (
    DeleteQuery,
    EvictionQuery,
    NoQuery,
    PageQuery,
    PutObjectQuery,
)
from placements.api.manifest_schema import ref
from placements.api.parsers import check_objects, has_body, parse_body, read_document
from placements.api.preconditions import etag, etag_response, expected_revision
from placements.api.schema import documented, documented_put, operation, page_serializer
from placements.api.serializers import (
    BUDGET_MANIFEST,
    PLACEMENT_MANIFEST,
    CamelCaseSerializer,
    PlacementLossSerializer,
    RowSerializer,
    Text,
    fields_of,
    json_field,
    names,
)
from placements.models import DisruptionBudget, Drain, DrainStep, Eviction
from placements.services.actions import ACTIONS, ActionKind
from placements.services.disruption.budgets import (
    UnknownBudgetError,
    delete_budget,
    save_budget,
)
from placements.services.disruption.drains import Pace
from placements.services.disruption.preview import drain_impact
from placements.services.disruption.queries import (
    BudgetState,
    budget_states,
    event_line,
    evictions_matching,
    latest_drain,
    left_of,
    numbers_facts,
    step_sentence,
)
from placements.services.disruption.restore import BringBackRow, RestorePlan, bring_back
from placements.services.results import get_placement
from placements.services.rollouts.operations import abandon_cluster, inject_faults
from placements.services.status import manifest_of
from placements.services.teams import of_placement

INJECTED_FAULTS = {"type": "array", "items": ref(SimulatedFault)}


_NUMBERS = {
    "type": "object",
    "nullable": True,
    "additionalProperties": {"type": "integer"},
    "description": "`available`, `total`, `wanted`, and how many more may be evicted: `allowed`.",
}


_UNCHECKED = "Placements that were not checked, because there are too many."
NumbersField = json_field(_NUMBERS)


class ClusterRefSerializer(CamelCaseSerializer):
    """The name of a cluster."""

    cluster = Text(max_length=253)


class EvictionSerializer(RowSerializer):
    """The eviction of a placement from a cluster, and its outcome."""

    drain = serializers.IntegerField(source="drain_id", allow_null=True)
    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)

    class Meta:
        model = Eviction
        fields = (
            "id",
            "placement",
            "cluster",
            "outcome",
            "why",
            "message",
            "numbers",
            "drain",
            "at",
            "by",
        )
        extra_kwargs = {
            "placement": {"source": "placement_name"},
            "cluster": {"source": "cluster_name"},
            "why": {"help_text": "A stable code, for programs."},
        }

    get_message = staticmethod(event_line)


class DrainStepSerializer(RowSerializer):
    """The progress of a drain with one placement."""

    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)

    class Meta:
        model = DrainStep
        fields = ("placement", "state", "why", "message", "numbers", "since")
        extra_kwargs = {
            "placement": {"source": "placement_name"},
            "since": {"source": "changed_at"},
            "why": {"allow_blank": True},
        }

    get_message = staticmethod(step_sentence)


class DrainProgressSerializer(RowSerializer):
    """A drain, in progress or ended."""

    order = names(source="first", help_text="The placements that are evicted first.")
    left = serializers.SerializerMethodField(
        help_text="The placements that are not evicted yet."
    )
    placements: Any = serializers.SerializerMethodField()

    class Meta:
        model = Drain
        fields = (
            "id",
            "state",
            "at_once",
            "order",
            "deadline",
            "started_at",
            "started_by",
            "ended_at",
            "ended_because",
            "left",
            "placements",
        )
        extra_kwargs = {
            "deadline": {"help_text": "When the drain ends, whatever is left."},
            "ended_because": {"source": "ended_reason", "allow_blank": True},
        }

    @extend_schema_field(names())
    def get_left(self, row: Drain) -> list[str]:
        return [step.placement_name for step in left_of(row)]

    @extend_schema_field(DrainStepSerializer(many=True))
    def get_placements(self, row: Drain) -> Any:
        return DrainStepSerializer(row.steps.order_by("placement_name"), many=True).data


class DrainSerializer(CamelCaseSerializer):
    """The impact of draining a cluster now, and the progress of its last drain."""

    cluster = serializers.CharField()
    impact = PlacementLossSerializer(many=True)
    unlooked = serializers.IntegerField(help_text=_UNCHECKED)
    drain = DrainProgressSerializer(allow_null=True)


class DrainOptionsSerializer(CamelCaseSerializer):
    """Options of a drain; one that is left out stays as it is, in a new drain its default."""

    at_once = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=100,
        help_text="Concurrent evictions (default: 5).",
    )
    deadline_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=30 * 86400,
        help_text="When the drain ends, in seconds from now.",
    )
    order = serializers.ListField(
        child=serializers.CharField(max_length=63),
        required=False,
        max_length=1000,
        help_text="Placements that are evicted first, in this order; the others follow by name.",
    )


@fields_of(BringBackRow, "placement", "how", "message", "fresh")
class PlacementRestoreSerializer(CamelCaseSerializer):
    """Whether and how a placement would return to a cluster, and what that would change."""

    fresh = PlacementLossSerializer()


@fields_of(
    RestorePlan,
    "cluster",
    "cordoned",
    "placements",
    "unlooked",
    sources={"cordoned": "is_cordoned", "unlooked": "not_evaluated"},
    unlooked=_UNCHECKED,
)
class RestorePlanSerializer(CamelCaseSerializer):
    """What the last drain evicted from a cluster, and how it would return."""

    placements = PlacementRestoreSerializer(many=True, source="rows")


class ClusterDisruptionViewSet(BaseViewSet):
    model = MemberCluster
    not_found = UnknownClusterError

    @operation(
        "get_drain",
        DrainSerializer,
        is_costly=True,
        route=route_of(ACTIONS[ActionKind.CLUSTER, "drain"]),
        commands=[command_of(ACTIONS[ActionKind.CLUSTER, "drain"])],
    )
    def drain(self, request: Request, name: str) -> Response:
        """Get the impact of draining a cluster now, and the progress of its last drain."""
        return self._drain_response()

    @documented(
        "begin_drain",
        DrainSerializer,
        status=202,
        body=DrainOptionsSerializer,
        problems=(409,),
        is_costly=True,
        commands=[command_of(ACTIONS[ActionKind.CLUSTER, "drain"])],
    )
    @drain.mapping.post
    def begin_drain(self, request: Request, name: str) -> Response:
        """Drain a cluster: cordon it and evict its placements; or change the options of its drain.

        The body is optional. At the deadline the drain ends as `expired`; what is not `gone` is left.
        """
        self.get_object()
        options = (
            parse_body(request, DrainOptionsSerializer) if has_body(request) else {}
        )
        seconds, first = options.get("deadline_seconds"), options.get("order")
        deadline = (
            None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        )
        pace = Pace(
            options.get("at_once"),
            None,
            None if first is None else tuple(first),
            deadline,
        )
        ACTIONS[ActionKind.CLUSTER, "drain"].run(name, **actor(request), pace=pace)
        return self._drain_response(status=202)

    @documented(
        "cancel_drain",
        DrainSerializer,
        problems=(409,),
        is_costly=True,
        commands=[command_of(ACTIONS[ActionKind.CLUSTER, "cancel-drain"])],
    )
    @drain.mapping.delete
    def cancel_drain(self, request: Request, name: str) -> Response:
        """Cancel a drain: evictions stop, the cordon stays, and nothing is restored."""
        self.get_object()
        ACTIONS[ActionKind.CLUSTER, "cancel-drain"].run(name, **actor(request))
        return self._drain_response()

    def _drain_response(self, *, status: int = 200) -> Response:
        name = self.get_object().name
        impact = drain_impact(name, now=datetime.now(UTC))
        return Response(
            DrainSerializer(
                {
                    "cluster": name,
                    "impact": impact.rows,
                    "unlooked": impact.not_evaluated,
                    "drain": latest_drain(name),
                }
            ).data,
            status=status,
        )

    @operation("get_restore", RestorePlanSerializer, is_costly=True)
    def restore(self, request: Request, name: str) -> Response:
        """Get whether and how each placement that the last drain evicted would return to the cluster.

        As if the cluster were not cordoned. A placement that is `rescheduled` returns by POST to its
        `/reschedule`; `joins` and `leaves` are what that would change.
        """
        return Response(RestorePlanSerializer(bring_back(self.get_object().name)).data)

    @operation(
        "get_fault_injection",
        INJECTED_FAULTS,
        has_tag=True,
        problems=(409,),
        path="fault-injection",
    )
    def fault_injection(self, request: Request, name: str) -> Response:
        """Get the injected faults; 409 where the cluster is not simulated."""
        row = self.get_object()
        return etag_response(request, faults_of(row), etag(row.revision))

    @documented(
        "put_fault_injection",
        INJECTED_FAULTS,
        body=INJECTED_FAULTS,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )
    @fault_injection.mapping.put
    def put_fault_injection(self, request: Request, name: str) -> Response:
        """Replace the injected faults; an empty list ends all; 409 where the cluster is not simulated."""
        expected = expected_revision(request)
        with read_document(request) as errors:
            check_objects(errors, what="a list of faults")
            inject_faults(name, errors, **actor(request), expected=expected)
        return self.fault_injection(request, name)


class PlacementDisruptionViewSet(BaseViewSet):
    """Evictions of a placement, its disruption budget, and clusters that its deletion abandons.

    Only a cluster-scoped placement has a budget.
    """

    labels_of = staticmethod(of_placement)
    lookup_path = FullNameViewSet.lookup_path

    model = DisruptionBudget
    not_found = UnknownBudgetError

    @operation(
        "evict_placement",
        EvictionSerializer,
        body=ClusterRefSerializer,
        method="post",
        route=route_of(ACTIONS[ActionKind.ROLLING, "evict"]),
        commands=[command_of(ACTIONS[ActionKind.ROLLING, "evict"])],
    )
    def evict(self, request: Request, name: str) -> Response:
        """Evict a placement from a cluster.

        The response has the outcome, the reason and the numbers of the disruption budget.
        """
        get_placement(name)
        cluster = parse_body(request, ClusterRefSerializer)["cluster"]
        row = ACTIONS[ActionKind.ROLLING, "evict"].perform(
            name, cluster, **actor(request)
        )
        return Response(EvictionSerializer(row).data)

    @paged_list("list_evictions", EvictionSerializer, order="-id", unique="id")
    def evictions(self, params: Params, name: str) -> Rows:
        """List evictions of a placement, the newest first."""
        return Eviction.objects.filter(
            placement_name=get_placement(name).full_name
        ).defer("document")

    @operation(
        "abandon_cluster",
        PLACEMENT_MANIFEST,
        status=202,
        body=ClusterRefSerializer,
        problems=(409,),
        method="post",
        path="abandon-cluster",
    )
    def abandon_cluster(self, request: Request, name: str) -> Response:
        """Remove a cluster that is unreachable for 15 minutes from the deletion of a placement.

        The resources may remain on the cluster.
        """
        row = get_placement(name)
        abandon_cluster(
            name, parse_body(request, ClusterRefSerializer)["cluster"], **actor(request)
        )
        return Response(manifest_of(row), status=202)

    @operation("get_budget", BUDGET_MANIFEST, has_tag=True)
    def budget(self, request: Request, name: str) -> Response:
        """Get the disruption budget of a placement."""
        return self.manifest_response()

    @documented_put("put_budget", BUDGET_MANIFEST, query=PutObjectQuery)
    @budget.mapping.put
    def put_budget(self, request: Request, name: str) -> Response:
        """Create or update the disruption budget; it applies from the next eviction on."""
        return self.put_manifest(save_budget, query=PutObjectQuery)

    @documented("delete_budget", None, status=204, query=DeleteQuery, is_edit=True)
    @budget.mapping.delete
    def delete_budget(self, request: Request, name: str) -> Response:
        """Delete the disruption budget; it no longer limits evictions."""
        delete_budget(name, **actor(request), expected=expected_revision(request))
        return Response(status=204)


@fields_of(
    BudgetState,
    "name",
    "limit",
    "numbers",
    "problem",
    limit="Such as `maxUnavailable 1`.",
    problem="Why it allows nothing at all.",
)
class BudgetStateSerializer(CamelCaseSerializer):
    """A disruption budget, and what it allows now."""

    name = serializers.CharField()
    numbers = NumbersField(
        allow_null=True, help_text="Null where the budget allows nothing at all."
    )

    def to_representation(self, instance: BudgetState) -> dict[str, Any]:
        """Return the numbers as an eviction has them."""
        facts = {"limit": instance.limit, "problem": instance.problem}
        return {
            "name": instance.row.name,
            **facts,
            "numbers": numbers_facts(instance.numbers),
        }


class BudgetViewSet(BaseViewSet):
    model = DisruptionBudget
    not_found = UnknownBudgetError

    @documented("list_budgets", page_serializer(BudgetStateSerializer), query=PageQuery)
    def list(self, request: Request) -> Response:
        """List disruption budgets with what they allow now."""
        params = query_params(request, PageQuery)
        page = page_of(
            DisruptionBudget.objects.all(),
            order="name",
            size=params["limit"],
            after=params.get("after"),
        )
        items = BudgetStateSerializer(budget_states(list(page.rows)), many=True).data
        return page_response(request, items, page.after)

    @documented("get_budget_state", BudgetStateSerializer, query=NoQuery)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get a disruption budget with what it allows now."""
        return Response(
            BudgetStateSerializer(budget_states([self.get_object()])[0]).data
        )


class EvictionViewSet(BaseViewSet):
    model = Eviction
    lookup_path = "<number:number>"

    @paged_list(
        "list_all_evictions",
        EvictionSerializer,
        query=EvictionQuery,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List evictions, the newest first."""
        return evictions_matching(
            text=params["q"],
            placement=params["placement"],
            outcome=params.get("outcome", ""),
        )

    @documented("get_eviction", EvictionSerializer, query=NoQuery)
    def retrieve(self, request: Request, number: int) -> Response:
        """Get an eviction with its outcome."""
        return Response(EvictionSerializer(get_object_or_404(Eviction, pk=number)).data)
