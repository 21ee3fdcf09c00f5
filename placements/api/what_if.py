"""What-if: the loss of chosen clusters, and reports over every cluster and every domain."""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from placements.api.authentication import COMPUTING
from placements.api.base import (
    BaseViewSet,
    FullNameViewSet,
    MayRead,
    actor,
    query_params,
)
from placements.api.filters import NoQuery, ResilienceQuery
from placements.api.parsers import parse_body
from placements.api.renderers import CsvRenderer
from placements.api.schema import documented
from placements.api.serializers import (
    AnyValue,
    CamelCaseSerializer,
    PlacementLossSerializer,
    RowSerializer,
    fields_of,
    json_field,
    map_of,
    names,
)
from placements.engine.loss import LossCounts, LossVariant
from placements.explain.decision_document import bounded_document
from placements.explain.loss import choice_words, losses_csv
from placements.models import Placement, ResilienceLoss, ResilienceReport
from placements.services.loss.evaluation import chosen_clusters, losses
from placements.services.loss.queries import (
    NoReportError,
    age_of,
    losses_for,
    resilience_of,
    worst_losses,
)
from placements.services.loss.report import latest_report, start_report
from placements.services.results import UnknownPlacementError, get_placement

_LOSS_COLUMNS = (
    "level",
    "value",
    "variant",
    "clusters_count",
    "placements_count",
    "lost",
    "moved",
    "unfulfilled",
    "empty",
)
_LONGEST = 400
_MOST_NAMES = 10_000


class WhatIfInputSerializer(CamelCaseSerializer):
    """The clusters that are lost: those by name, and those that have all of the labels."""

    clusters = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=_MOST_NAMES,
    )
    labels = serializers.ListField(
        child=serializers.CharField(max_length=_LONGEST),
        required=False,
        default=list,
        max_length=20,
        help_text="`key:value`, or `key` for any value.",
    )
    variant = serializers.ChoiceField(
        list(LossVariant),
        required=False,
        default=LossVariant.LEAVE,
        help_text="How they are lost.",
    )
    decision = serializers.CharField(
        required=False,
        default="",
        max_length=_LONGEST,
        help_text="The full name of a placement whose hypothetical decision is returned, too.",
    )


class WhatIfSerializer(CamelCaseSerializer):
    """What the loss of clusters does to the placements, the worst first."""

    clusters = names()
    chosen_by = serializers.CharField()
    variant = serializers.ChoiceField(list(LossVariant))
    fates = json_field(
        {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
            },
        }
    )(help_text="By variant, the number of placements with each impact.")
    evaluated = serializers.IntegerField()
    not_evaluated = serializers.IntegerField(
        help_text="Placements beyond the limit of 2,000."
    )
    placements = PlacementLossSerializer(many=True)
    decision = AnyValue(
        allow_null=True,
        help_text="As that of `simulate`; null unless it was requested.",
    )


class ReportInputSerializer(CamelCaseSerializer):
    """A report to compute: the topology keys and the variants; by default those in use, and all."""

    keys: Any = serializers.ListField(
        child=serializers.CharField(max_length=400),
        required=False,
        default=list,
        max_length=20,
    )
    variants = serializers.ListField(
        child=serializers.ChoiceField([str(variant) for variant in LossVariant]),
        required=False,
        default=list,
    )


class LossSerializer(RowSerializer):
    """One loss in one variant, and what it does to the placements together."""

    class Meta:
        model = ResilienceLoss
        fields = (
            "level",
            "value",
            "variant",
            "clusters",
            "placements",
            "lost",
            "moved",
            "unfulfilled",
            "empty",
        )
        extra_kwargs = {
            "clusters": {"source": "clusters_count"},
            "placements": {"source": "placements_count"},
        }


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

    keys: Any = serializers.ListField(child=serializers.CharField())
    variants = serializers.ListField(child=serializers.CharField())
    totals = json_field(map_of(map_of(map_of(_WORST))))(
        help_text="The worst loss by level, variant and kind: `unfulfilled`, `empty`, `lost`."
    )

    class Meta:
        model = ResilienceReport
        fields = (
            "id",
            "keys",
            "variants",
            "at",
            "by",
            "fleet_version",
            "done",
            "losses",
            "placements",
            "completed_at",
            "totals",
        )
        extra_kwargs = {
            "at": {"source": "created_at"},
            "by": {"source": "created_by"},
            "placements": {"source": "placements_count"},
            "losses": {"source": "losses_count"},
        }


class LatestReportSerializer(CamelCaseSerializer):
    """The latest completed report with its losses, the worst first."""

    report = ReportSerializer()
    outdated = serializers.BooleanField()
    losses = LossSerializer(many=True)


@fields_of(
    LossCounts,
    "level",
    "value",
    "variant",
    "kept",
    "moved",
    "lost",
    "unfulfilled",
    "empty",
    "skew",
    within="cell",
    sources={"unfulfilled": "is_unfulfilled", "empty": "is_empty"},
    skew="The worst skew afterwards; of the clusters that work for `down`.",
)
class CellSerializer(CamelCaseSerializer):
    """What one loss does to one placement: numbers of clusters."""

    level = serializers.CharField()
    value = serializers.CharField()
    variant = serializers.ChoiceField(
        [str(loss_variant) for loss_variant in LossVariant]
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


class WhatIfViewSet(BaseViewSet):
    """The loss of chosen clusters; readers may evaluate it, as it changes nothing on the fleet."""

    permission_classes = (MayRead,)

    @documented(
        "evaluate_loss",
        WhatIfSerializer,
        body=WhatIfInputSerializer,
        is_costly=True,
        scopes=COMPUTING,
    )
    def create(self, request: Request) -> Response:
        """Evaluate the loss of clusters: they are down, drained, or removed from the fleet."""
        fields = parse_body(request, WhatIfInputSerializer, errors=ValidationError)
        clusters = chosen_clusters(fields["clusters"], fields["labels"])
        impacts = losses(clusters)
        impact = impacts[LossVariant(fields["variant"])]
        decision = {row.placement: row.decision for row in impact.rows}.get(
            fields["decision"]
        )
        return Response(
            WhatIfSerializer(
                {
                    "clusters": clusters,
                    "chosen_by": choice_words(
                        sorted(set(fields["clusters"])), fields["labels"], len(clusters)
                    ),
                    "variant": fields["variant"],
                    "fates": {variant: one.counts for variant, one in impacts.items()},
                    "evaluated": impact.evaluated,
                    "not_evaluated": impact.not_evaluated,
                    "placements": impact.rows,
                    "decision": bounded_document(decision) if decision else None,
                }
            ).data
        )


class ResilienceViewSet(BaseViewSet):
    """Resilience reports; readers may compute them, as they change nothing on the fleet."""

    permission_classes = (MayRead,)

    def get_renderers(self) -> Any:
        return [
            *super().get_renderers(),
            *([CsvRenderer()] if self.action == "latest" else []),
        ]

    @documented(
        "start_resilience_report",
        ReportSerializer,
        status=202,
        body=ReportInputSerializer,
        is_costly=True,
    )
    def create(self, request: Request) -> Response:
        """Compute a resilience report of every cluster and every domain."""
        fields = parse_body(request, ReportInputSerializer, errors=ValidationError)
        row = start_report(
            keys=fields["keys"], variants=fields["variants"], **actor(request)
        )
        location = reverse("api:resilience", request=request)
        return Response(
            ReportSerializer(row).data, status=202, headers={"Location": location}
        )

    @documented(
        "get_resilience_report",
        LatestReportSerializer,
        query=ResilienceQuery,
        also={(200, "text/csv"): str},
        is_costly=True,
        problems=(409,),
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
            LatestReportSerializer(
                {"report": report, "outdated": outdated, "losses": items}
            ).data
        )


class PlacementResilienceViewSet(FullNameViewSet):
    permission_classes = (MayRead,)
    model = Placement
    not_found = UnknownPlacementError

    @documented(
        "get_placement_resilience",
        PlacementReportSerializer,
        problems=(409,),
        query=NoQuery,
    )
    def retrieve(self, request: Request, name: str) -> Response:
        """Get what the latest resilience report says of a placement."""
        placement, report = get_placement(name), _latest()
        resilience = resilience_of(placement)
        return Response(
            PlacementReportSerializer(
                {
                    "placement": placement.full_name,
                    "survives": resilience.levels if resilience else [],
                    "weakest_point": resilience.weakest if resilience else None,
                    "outdated": resilience is None
                    or resilience.decisions_made != placement.decisions_made
                    or age_of(report).is_other_fleet,
                    "losses": losses_for(report, placement),
                }
            ).data
        )


def _latest() -> ResilienceReport:
    report = latest_report()
    if report is None:
        raise NoReportError
    return report
