"""What saving a draft would do: its decision and its rollout. Nothing is saved."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.apimachinery.errors import ManifestWarning
from placements.api.authentication import COMPUTING
from placements.api.base import FullNameViewSet, MayRead, actor, check_names
from placements.api.checks import FindingSerializer
from placements.api.decisions import ComparisonSerializer
from placements.api.parsers import read_document
from placements.api.placements import PlacementViewSet
from placements.api.schema import documented, operation
from placements.api.serializers import (
    PLACEMENT_MANIFEST,
    AnyObject,
    CamelCaseSerializer,
    Score,
    WarningSerializer,
    names,
)
from placements.engine.scheduling.replay import Replay, Spread
from placements.explain.checks import finding_document
from placements.explain.decision_document import bounded_document, comparison_document
from placements.explain.rollouts import plan_document
from placements.manifests.placement import parse_placement
from placements.services.checks import examine_one
from placements.services.decisions.compare_semantics import side_by_side_of_draft
from placements.services.editor.operations import plan_now
from placements.services.editor.preview import preview
from placements.services.results import get_placement
from placements.services.teams import placement_refusal


class WaveSerializer(CamelCaseSerializer):
    """Updates that start together, and the budgets afterwards."""

    number = serializers.IntegerField()
    count = serializers.IntegerField()
    actions = serializers.ListField(child=AnyObject())
    budgets = AnyObject()


class PlanSerializer(CamelCaseSerializer):
    """The waves of a rollout, and the clusters that are blocked after them."""

    waves = WaveSerializer(many=True)
    rest = AnyObject()


class PickSerializer(CamelCaseSerializer):
    """A selected cluster with the scores of its round."""

    cluster = serializers.CharField()
    topology_spread_score = Score(allow_null=True)
    affinity_score = serializers.FloatField(allow_null=True)


class PicksSerializer(CamelCaseSerializer):
    """The number of clusters, and the first of them."""

    count = serializers.IntegerField()
    first = PickSerializer(many=True)


class NamesSerializer(CamelCaseSerializer):
    """The number of clusters, and the first of them."""

    count = serializers.IntegerField()
    first = names()


class DomainSerializer(CamelCaseSerializer):
    """A topology domain."""

    group = serializers.CharField()
    count = serializers.IntegerField()


class SpreadSerializer(CamelCaseSerializer):
    """A spread constraint after the last round."""

    topology_key = serializers.CharField()
    max_skew = serializers.IntegerField()
    hard = serializers.BooleanField()
    skew = serializers.IntegerField()
    groups_count = serializers.IntegerField()
    groups = DomainSerializer(
        many=True, help_text="Only the largest and the smallest if there are many."
    )


class PreviewSerializer(CamelCaseSerializer):
    """The decision that saving a draft would lead to."""

    decision = serializers.CharField()
    fulfilled = serializers.BooleanField()
    is_incremental = serializers.BooleanField()
    picked = PicksSerializer()
    joins = NamesSerializer()
    leaves = NamesSerializer()
    stays = NamesSerializer()
    selected_resources = serializers.IntegerField()
    spread = SpreadSerializer(many=True)
    warnings = WarningSerializer(many=True)
    findings = FindingSerializer(
        many=True, help_text="What the checks find in the draft."
    )


MOST_SHOWN = 20
MOST_GROUPS = 50


class PreviewViewSet(PlacementViewSet):
    """The path of the preview is also that of a placement named `preview`: their methods differ."""

    def get_permissions(self) -> Any:
        return (
            [MayRead()]
            if self.action in ("preview", "preview_semantics")
            else super().get_permissions()
        )

    @documented(
        "preview_placement",
        PreviewSerializer,
        body=PLACEMENT_MANIFEST,
        is_costly=True,
        scopes=COMPUTING,
    )
    def preview(self, request: Request, name: str) -> Response:
        """Schedule a draft as saving it would."""
        with read_document(request) as document:
            result = preview(parse_placement(document))
        manifest, warnings = result.manifest, list(result.warnings)
        before = result.saved.document if result.saved else None
        if refusal := placement_refusal(
            actor(request)["by"], manifest, before=before, after=document
        ):
            warnings.append(ManifestWarning("forbidden", "metadata.labels", refusal))
        kept = result.decision.cycle.placed.tolist()
        findings = examine_one(
            manifest, result.decision.cycle, kept=kept, asserted=result.assertions
        ).findings
        decision, rounds = result.decision, result.decision.number_of_rounds
        document = {
            "decision": decision.id,
            "fulfilled": decision.is_fulfilled,
            "is_incremental": result.is_incremental,
            "picked": _first(decision.picked),
            "joins": _first(result.joins),
            "leaves": _first(result.leaves),
            "stays": _first(result.stays),
            "selected_resources": len(result.selection.objects),
            "spread": [
                _spread(spread)
                for spread in (Replay(decision).step(rounds).spreads if rounds else ())
            ],
            "warnings": warnings,
            "findings": [
                finding_document(manifest.full_name, finding) for finding in findings
            ],
        }
        return Response(PreviewSerializer(document).data)

    @documented(
        "preview_semantics",
        ComparisonSerializer,
        body=PLACEMENT_MANIFEST,
        is_costly=True,
        scopes=COMPUTING,
    )
    def preview_semantics(self, request: Request) -> Response:
        """Schedule a draft under all scheduling rules, and compare the decisions."""
        with read_document(request) as document:
            sides = side_by_side_of_draft(parse_placement(document))
        comparison = comparison_document(
            sides.comparison, warnings=sides.warnings, write=bounded_document
        )
        return Response(
            {
                **comparison,
                "refused": {
                    str(semantics): why for semantics, why in sides.refused.items()
                },
            }
        )


def _first(clusters: Sequence[Any]) -> dict[str, Any]:
    return {"count": len(clusters), "first": clusters[:MOST_SHOWN]}


def _spread(one: Spread) -> dict[str, Any]:
    groups = sorted(one.after.items(), key=lambda pair: (-pair[1], pair[0]))
    half = MOST_GROUPS // 2
    first_groups = (
        groups if len(groups) <= MOST_GROUPS else [*groups[:half], *groups[-half:]]
    )
    return {
        "topology_key": one.topology_key,
        "max_skew": one.max_skew,
        "hard": one.is_hard,
        "skew": one.skew_after,
        "groups_count": len(groups),
        "groups": [{"group": group, "count": count} for group, count in first_groups],
    }


class PlanViewSet(FullNameViewSet):
    permission_classes = (MayRead,)

    @operation("get_plan", PlanSerializer, is_costly=True)
    def plan(self, request: Request, name: str) -> Response:
        """Plan the rollout of a placement."""
        return Response(
            plan_document(*plan_now(get_placement(name), now=datetime.now(UTC)))
        )

    @documented(
        "plan_draft",
        PlanSerializer,
        body=PLACEMENT_MANIFEST,
        is_costly=True,
        scopes=COMPUTING,
    )
    @plan.mapping.post
    def plan_draft(self, request: Request, name: str) -> Response:
        """Plan the rollout that saving a draft of a placement would start."""
        with read_document(request) as document:
            check_names(document, {"metadata.name": name})
            plan = preview(parse_placement(document)).plan(now=datetime.now(UTC))
        return Response(plan_document(plan))
