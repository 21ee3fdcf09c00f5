"""What-if analyses: the impact on every placement if clusters left."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from placements.api.base import BaseViewSet, MayRead, Params, Rows, actor, paged_list
from placements.api.filters import ScenarioPlacementQuery
from placements.api.parsers import parse_body
from placements.api.schema import documented
from placements.api.serializers import CamelCaseSerializer, RowSerializer, Score, names, number, text
from placements.models import Scenario, ScenarioDecision
from placements.services.what_if.operations import create_scenario
from placements.services.what_if.queries import (
    PlacementImpact,
    Variant,
    done_count,
    impact_counts,
    scenario_numbered,
)

_LONGEST = 400
_MOST_NAMES = 10_000
_COUNTS = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
    "description": "By variant, the number of placements with each impact.",
}


class WhatIfSerializer(CamelCaseSerializer):
    """A what-if analysis to create: the clusters by name, and those that have all of the labels."""

    clusters = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST), required=False, default=list, max_length=_MOST_NAMES
    )
    labels = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
        help_text="`key:value`, or `key` for any value.",
    )
    variant = serializers.ChoiceField(
        Variant.values,
        required=False,
        help_text="The variant that `result` shows (default: `leave`); both are evaluated.",
    )


class ScenarioSerializer(RowSerializer):
    """A what-if analysis and its progress; `result` is the address of the impact on each placement."""

    clusters = names()
    state: Any = serializers.SerializerMethodField()
    done = serializers.SerializerMethodField()
    placements = number("placements_count")
    fates: Any = serializers.SerializerMethodField()
    at = serializers.DateTimeField(source="created_at")
    by = text("created_by")
    result = serializers.SerializerMethodField()

    class Meta:
        model = Scenario
        fields = (
            *("id", "name", "clusters", "chosen_by", "state", "done", "placements", "left_out", "fates"),
            *("fleet_version", "at", "by", "result"),
        )

    @extend_schema_field(serializers.ChoiceField(["working", "answered", "canceled"]))
    def get_state(self, row: Scenario) -> str:
        return "canceled" if row.is_canceled else "answered" if row.is_answered else "working"

    def get_done(self, row: Scenario) -> int:
        return row.placements_count if row.is_answered and not row.is_canceled else done_count(row)

    @extend_schema_field(_COUNTS)
    def get_fates(self, row: Scenario) -> dict[str, dict[str, int]]:
        counts = impact_counts([row])
        return {variant: counts.get((row.pk, variant), {}) for variant in Variant.values}

    @extend_schema_field(serializers.URLField())
    def get_result(self, row: Scenario) -> str:
        address = reverse("api:scenario-placements", args=[row.pk], request=self.context["request"])
        return f"{address}?variant={self.context.get('variant', Variant.LEAVE)}"


class JoiningSerializer(CamelCaseSerializer):
    """A cluster that would be selected, with the scores of its round."""

    cluster = serializers.CharField()
    topology_spread_score = Score(allow_null=True)
    affinity_score = serializers.FloatField(allow_null=True)


class ScenarioDecisionSerializer(RowSerializer):
    """The impact on one placement; `joins` and `leaves` have the first twenty clusters."""

    placement = text("placement_name")
    variant = serializers.ChoiceField(Variant.values)
    fate = serializers.ChoiceField([str(one) for one in PlacementImpact], source="impact")
    fulfilled = serializers.BooleanField(source="is_fulfilled")
    joins: Any = serializers.SerializerMethodField()
    leaves = names()
    message = text("why", allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    decision = text("record.decision_id")

    class Meta:
        model = ScenarioDecision
        fields = (
            *("placement", "variant", "fate", "fulfilled", "wanted", "placed_before", "placed_after"),
            *("joins_count", "leaves_count", "joins", "leaves", "message", "note", "decision"),
        )

    @extend_schema_field(JoiningSerializer(many=True))
    def get_joins(self, row: ScenarioDecision) -> list[dict[str, Any]]:
        return [
            {"cluster": name, "topologySpreadScore": topology, "affinityScore": affinity}
            for name, topology, affinity in row.pairs
        ]


class WhatIfViewSet(BaseViewSet):
    """What-if analyses; readers may create them, as they change nothing on the fleet."""

    lookup_path = "<number:number>"
    permission_classes = (MayRead,)

    @paged_list("list_what_ifs", ScenarioSerializer, order="-id", unique="id")
    def list(self, params: Params) -> Rows:
        """List what-if analyses, the newest first."""
        return Scenario.objects.all()

    @documented("create_what_if", ScenarioSerializer, status=201, body=WhatIfSerializer, is_costly=True)
    def create(self, request: Request) -> Response:
        """Create a what-if analysis: clusters leave the fleet, or are cordoned and drained."""
        fields = parse_body(request, WhatIfSerializer, errors=ValidationError)
        row = create_scenario(names=fields["clusters"], labels=fields["labels"], **actor(request))
        context = {"request": request, "variant": fields.get("variant", Variant.LEAVE)}
        document = ScenarioSerializer(row, context=context).data
        location = reverse("api:scenario", args=[row.pk], request=request)
        return Response(document, status=201, headers={"Location": location})

    @documented("get_what_if", ScenarioSerializer)
    def retrieve(self, request: Request, number: int) -> Response:
        """Get a what-if analysis with its progress and the number of placements by impact."""
        row = scenario_numbered(number)
        return Response(ScenarioSerializer(row, context={"request": request}).data)

    @paged_list(
        "list_what_if_placements",
        ScenarioDecisionSerializer,
        query=ScenarioPlacementQuery,
        order="placement_name",
        unique="placement_name",
        route={"url_name": "scenario-placements"},
    )
    def placements(self, params: Params, number: int) -> Rows:
        """List the placements of a what-if analysis by name, with their impact and hypothetical decision."""
        rows = ScenarioDecision.objects.filter(scenario=scenario_numbered(number), variant=params["variant"])
        rows = rows.filter(impact=params["fate"]) if "fate" in params else rows
        return rows.select_related("record").defer("record__content")
