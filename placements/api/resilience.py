"""Resilience reports: what the loss of every cluster and every domain does to the placements."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from placements.api.base import BaseViewSet, FullNameViewSet, MayRead, actor, query_params
from placements.api.filters import ResilienceQuery
from placements.api.parsers import parse_body
from placements.api.renderers import CsvRenderer
from placements.api.schema import documented
from placements.api.serializers import CamelCaseSerializer, RowSerializer, json_field, map_of, number, text
from placements.engine.resilience import LossVariant
from placements.explain.resilience import losses_csv
from placements.models import Placement, ResilienceLoss, ResilienceReport
from placements.services.resilience.operations import latest_report, start_report
from placements.services.resilience.queries import (
    NoReportError,
    age_of,
    losses_for,
    resilience_of,
    worst_losses,
)
from placements.services.results import UnknownPlacementError, get_placement

_LOSS_COLUMNS = (
    *("level", "value", "variant", "clusters_count", "placements_count"),
    *("lost", "moved", "unfulfilled", "empty"),
)


class ReportInputSerializer(CamelCaseSerializer):
    """A report to compute: the topology keys and the variants; by default those in use, and all."""

    keys: Any = serializers.ListField(
        child=serializers.CharField(max_length=400), required=False, default=list, max_length=20
    )
    variants = serializers.ListField(
        child=serializers.ChoiceField([str(one) for one in LossVariant]), required=False, default=list
    )


class LossSerializer(RowSerializer):
    """One loss in one variant, and what it does to the placements together."""

    clusters = number("clusters_count")
    placements = number("placements_count")

    class Meta:
        model = ResilienceLoss
        fields = (
            *("level", "value", "variant", "clusters", "placements", "lost", "moved", "unfulfilled"),
            "empty",
        )


_WORST = {
    "type": "object",
    "properties": {"value": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["value", "count"],
}


class WeakestPointSerializer(CamelCaseSerializer):
    """The smallest loss that a placement does not survive."""

    level = serializers.CharField()
    value = serializers.CharField()


class ReportSerializer(RowSerializer):
    """A report and its progress; `totals` has the worst losses by level and variant."""

    at = serializers.DateTimeField(source="created_at")
    by = text("created_by")
    keys: Any = serializers.ListField(child=serializers.CharField())
    variants = serializers.ListField(child=serializers.CharField())
    placements = number("placements_count")
    losses = number("losses_count")
    totals = json_field(map_of(map_of(map_of(_WORST))))(
        help_text="The worst loss by level, variant and kind: `unfulfilled`, `empty`, `lost`."
    )

    class Meta:
        model = ResilienceReport
        fields = (
            *("id", "keys", "variants", "at", "by", "fleet_version", "done", "losses", "placements"),
            *("completed_at", "totals"),
        )


class LatestReportSerializer(CamelCaseSerializer):
    """The latest completed report with its losses, the worst first."""

    report = ReportSerializer()
    outdated = serializers.BooleanField()
    losses = LossSerializer(many=True)


class CellSerializer(CamelCaseSerializer):
    """What one loss does to one placement: numbers of clusters."""

    level = serializers.CharField()
    value = serializers.CharField()
    variant = serializers.ChoiceField([str(one) for one in LossVariant])
    kept = serializers.IntegerField(source="cell.kept")
    moved = serializers.IntegerField(source="cell.moved")
    lost = serializers.IntegerField(source="cell.lost")
    unfulfilled = serializers.BooleanField(source="cell.is_unfulfilled")
    empty = serializers.BooleanField(source="cell.is_empty")
    skew = serializers.IntegerField(
        source="cell.skew", help_text="The worst skew afterwards; of the clusters that work for `down`."
    )


class PlacementReportSerializer(CamelCaseSerializer):
    """What the latest report says of one placement."""

    placement = serializers.CharField()
    survives = serializers.ListField(
        child=serializers.CharField(),
        help_text="Levels of which no loss makes it unfulfilled or leaves it without a working cluster.",
    )
    weakest_point = WeakestPointSerializer(allow_null=True)
    outdated = serializers.BooleanField()
    losses = CellSerializer(many=True)


class ResilienceViewSet(BaseViewSet):
    """Resilience reports; readers may compute them, as they change nothing on the fleet."""

    permission_classes = (MayRead,)

    def get_renderers(self) -> Any:
        return [*super().get_renderers(), *([CsvRenderer()] if self.action == "latest" else [])]

    @documented(
        "start_resilience_report", ReportSerializer, status=202, body=ReportInputSerializer, is_costly=True
    )
    def create(self, request: Request) -> Response:
        """Compute a resilience report of every cluster and every domain."""
        fields = parse_body(request, ReportInputSerializer, errors=ValidationError)
        row = start_report(keys=fields["keys"], variants=fields["variants"], **actor(request))
        location = reverse("api:resilience-latest", request=request)
        return Response(ReportSerializer(row).data, status=202, headers={"Location": location})

    @documented(
        "get_resilience_report",
        LatestReportSerializer,
        query=ResilienceQuery,
        also={(200, "text/csv"): str},
        is_costly=True,
    )
    def latest(self, request: Request) -> Response:
        """Get the latest resilience report with its losses, the worst first."""
        params = query_params(request, ResilienceQuery)
        report = _latest()
        variant = params.get("variant") or report.variants[-1]
        rows = worst_losses(report, variant, params["level"])
        if request.accepted_renderer.format == CsvRenderer.format:
            return Response(losses_csv(rows.values_list(*_LOSS_COLUMNS)))
        outdated = age_of(report).is_outdated
        items = list(rows[: params["limit"]])
        return Response(
            LatestReportSerializer({"report": report, "outdated": outdated, "losses": items}).data
        )


class PlacementResilienceViewSet(FullNameViewSet):
    """What the latest report says of one placement."""

    permission_classes = (MayRead,)
    model = Placement
    not_found = UnknownPlacementError

    @documented("get_placement_resilience", PlacementReportSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get what the latest resilience report says of a placement."""
        query_params(request)
        placement, report = get_placement(name), _latest()
        resilience = resilience_of(placement)
        document = {
            "placement": placement.full_name,
            "survives": resilience.levels if resilience else [],
            "weakest_point": resilience.weakest if resilience else None,
            "outdated": resilience is None
            or resilience.decisions_made != placement.decisions_made
            or age_of(report).is_other_fleet,
            "losses": losses_for(report, placement),
        }
        return Response(PlacementReportSerializer(document).data)


def _latest() -> ResilienceReport:
    report = latest_report()
    if report is None:
        raise NoReportError
    return report
