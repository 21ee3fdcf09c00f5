"""Rebalance plans of placements: computed, started, paused, resumed and stopped."""

from functools import partial

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from placements.api.base import FullNameViewSet, Params, Rows, actor, paged_list, query_params
from placements.api.filters import RebalanceQuery
from placements.api.parsers import has_body, parse_body
from placements.api.schema import documented, operation
from placements.api.serializers import CamelCaseSerializer, RowSerializer, json_field, text
from placements.explain.rebalance import plan_document
from placements.models import RebalancePlan
from placements.services.rebalance import (
    MOST_MOVES,
    UnknownPlanError,
    change_plan,
    preview_rebalance,
    start_plan,
)
from placements.services.results import get_placement
from placements.services.teams import of_placement

_STEP = {
    "type": "object",
    "properties": {
        "leave": {"type": "string", "nullable": True},
        "join": {"type": "string", "nullable": True},
        "skew": {"type": "integer", "description": "The sum of all skews after the step."},
        "hardExcess": {"type": "integer", "description": "By how much hard limits are exceeded after it."},
        "breaksLimit": {"type": "boolean"},
    },
    "required": ["leave", "join", "skew", "hardExcess", "breaksLimit"],
}
_BATCHES = {"type": "array", "items": {"type": "array", "items": _STEP}}


class CurvePointSerializer(CamelCaseSerializer):
    """The best set of clusters with at most `limit` moves."""

    limit = serializers.IntegerField()
    placed = serializers.IntegerField()
    hard_excess = serializers.IntegerField()
    excess = serializers.IntegerField()
    stale = serializers.IntegerField()
    skew = serializers.IntegerField()
    affinity = serializers.IntegerField()
    moves = serializers.IntegerField()


class RebalanceSerializer(CamelCaseSerializer):
    """What few moves reach, and the steps of one plan."""

    wanted = serializers.IntegerField(required=False)
    current = CurvePointSerializer(required=False)
    curve = CurvePointSerializer(many=True, required=False)
    chosen = CurvePointSerializer(required=False)
    is_safe = serializers.BooleanField(required=False, help_text="No step breaks a limit on the way.")
    is_cut = serializers.BooleanField(
        required=False, help_text="The search ended before its result is proved."
    )
    batches = json_field(_BATCHES)(required=False)
    refusal = serializers.CharField(allow_blank=True, help_text="Why the plan cannot be started.")
    hub = serializers.CharField(
        required=False, allow_blank=True, help_text="On a live hub: whether the hub would follow the plan."
    )


class PlanInputSerializer(CamelCaseSerializer):
    """The maximum of moves; by default the fewest that repair all hard limits."""

    moves = serializers.IntegerField(required=False, min_value=0, max_value=MOST_MOVES)


class RebalancePlanSerializer(RowSerializer):
    """A plan and its progress."""

    placement = text("placement.full_name")
    state = serializers.ChoiceField(RebalancePlan.State.values)
    batches = json_field(_BATCHES)()

    class Meta:
        model = RebalancePlan
        fields = (
            *("number", "placement", "state", "moves", "batches", "done", "is_moving", "waits_for"),
            *("created_at", "created_by", "ended_at", "ended_reason"),
        )
        extra_kwargs = {
            "done": {"help_text": "How many batches are finished."},
            "is_moving": {"help_text": "The rollout of the next batch is in progress."},
        }


_PLAN = "rebalance-plans/<number:number>"
_plan_action = partial(operation, response=RebalancePlanSerializer, method="post", problems=(409,))


class RebalanceViewSet(FullNameViewSet):
    """Rebalance plans of one placement."""

    labels_of = staticmethod(of_placement)

    @operation("get_rebalance", RebalanceSerializer, query=RebalanceQuery, is_costly=True)
    def rebalance(self, request: Request, name: str) -> Response:
        """Get what each number of moves reaches, and the plan for one of them."""
        params = query_params(request, RebalanceQuery)
        preview = preview_rebalance(get_placement(name), moves=params.get("moves"))
        if preview.plan is None:
            return Response({"refusal": preview.refusal})
        document = plan_document(preview.plan, preview.batches, refusal=preview.refusal, hub=preview.hub)
        return Response(document)

    @paged_list(
        "list_rebalance_plans",
        RebalancePlanSerializer,
        order="-number",
        unique="number",
        path="rebalance-plans",
        route={"url_name": "rebalance-plans"},
    )
    def plans(self, params: Params, name: str) -> Rows:
        """List the rebalance plans of a placement, the newest first."""
        return get_placement(name).rebalance_plans.select_related("placement")

    @documented(
        "start_rebalance_plan",
        RebalancePlanSerializer,
        status=201,
        body=PlanInputSerializer,
        problems=(409,),
        is_costly=True,
    )
    @plans.mapping.post
    def start_plan(self, request: Request, name: str) -> Response:
        """Start the plan of a placement as it is now. The body is optional."""
        fields = parse_body(request, PlanInputSerializer) if has_body(request) else {}
        row = start_plan(get_placement(name).full_name, moves=fields.get("moves"), **actor(request))
        location = reverse("api:rebalance-plan", args=[name, row.number], request=request)
        return Response(RebalancePlanSerializer(row).data, status=201, headers={"Location": location})

    @operation(
        "get_rebalance_plan", RebalancePlanSerializer, path=_PLAN, route={"url_name": "rebalance-plan"}
    )
    def plan(self, request: Request, name: str, number: int) -> Response:
        """Get a rebalance plan and its progress."""
        query_params(request)
        row = get_placement(name).rebalance_plans.filter(number=number).first()
        if row is None:
            raise UnknownPlanError(name, number)
        return Response(RebalancePlanSerializer(row).data)

    @_plan_action("pause_rebalance_plan", path=f"{_PLAN}/pause")
    def pause(self, request: Request, name: str, number: int) -> Response:
        """Pause a plan: the next batch does not start, one in progress is finished."""
        return self._change("pause", name, number)

    @_plan_action("resume_rebalance_plan", path=f"{_PLAN}/resume")
    def resume(self, request: Request, name: str, number: int) -> Response:
        """Resume a paused plan."""
        return self._change("resume", name, number)

    @_plan_action("stop_rebalance_plan", path=f"{_PLAN}/stop")
    def stop(self, request: Request, name: str, number: int) -> Response:
        """Stop a plan; a batch in progress is finished by the rollout."""
        return self._change("stop", name, number)

    def _change(self, action: str, name: str, number: int) -> Response:
        row = change_plan(get_placement(name).full_name, number, action, **actor(self.request))
        return Response(RebalancePlanSerializer(row).data)
