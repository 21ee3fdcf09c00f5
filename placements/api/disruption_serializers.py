"""Fields of evictions, disruption budgets, drains and rescheduling."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from placements.api.serializers import AnyObject, CamelCaseSerializer, RowSerializer, Text, names, text
from placements.models import Drain, DrainStep, Eviction
from placements.services.disruption.impact import EvictionImpact
from placements.services.disruption.queries import event_line, left_of, step_sentence
from placements.services.disruption.restore import Return

INJECTED_FAULTS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
_NUMBERS = {
    "type": "object",
    "nullable": True,
    "additionalProperties": {"type": "integer"},
    "description": "`available`, `total`, `wanted`, and how many more may be evicted: `allowed`.",
}
_UNCHECKED = "Placements that were not checked, because there are too many."


@extend_schema_field(_NUMBERS)
class NumbersField(serializers.JSONField):
    """The numbers of a disruption budget."""


class BudgetManifestSerializer(CamelCaseSerializer):
    """A ClusterResourcePlacementDisruptionBudget."""

    api_version = serializers.CharField()
    kind = serializers.ChoiceField(["ClusterResourcePlacementDisruptionBudget"])
    metadata = AnyObject()
    spec = AnyObject()


class ClusterRefSerializer(CamelCaseSerializer):
    """The name of a cluster."""

    cluster = Text(max_length=253)


class EvictionSerializer(RowSerializer):
    """The eviction of a placement from a cluster, and its outcome."""

    placement = text("placement_name")
    cluster = text("cluster_name")
    outcome = serializers.ChoiceField(Eviction.Outcome.values)
    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)
    drain = serializers.IntegerField(source="drain_id", allow_null=True)

    class Meta:
        model = Eviction
        fields = (
            *("id", "placement", "cluster", "outcome", "why", "message", "numbers", "drain", "at", "by"),
        )
        extra_kwargs = {"why": {"help_text": "A stable code, for programs."}}

    def get_message(self, row: Eviction) -> str:
        return event_line(row)


class DrainStepSerializer(RowSerializer):
    """The progress of a drain with one placement."""

    placement = text("placement_name")
    state = serializers.ChoiceField(DrainStep.State.values)
    why = serializers.CharField(allow_blank=True)
    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)
    since = serializers.DateTimeField(source="changed_at")

    class Meta:
        model = DrainStep
        fields = ("placement", "state", "why", "message", "numbers", "since")

    def get_message(self, row: DrainStep) -> str:
        return step_sentence(row)


class DrainProgressSerializer(RowSerializer):
    """A drain, in progress or ended."""

    state = serializers.ChoiceField(Drain.State.values)
    order = names(source="first", help_text="The placements that are evicted first.")
    ended_because = text("ended_reason", allow_blank=True)
    left = serializers.SerializerMethodField(help_text="The placements that are not evicted yet.")
    placements: Any = serializers.SerializerMethodField()

    class Meta:
        model = Drain
        fields = (
            *("id", "state", "at_once", "order", "deadline", "started_at", "started_by", "ended_at"),
            *("ended_because", "left", "placements"),
        )
        extra_kwargs = {"deadline": {"help_text": "When the drain ends, whatever is left."}}

    @extend_schema_field(names())
    def get_left(self, row: Drain) -> list[str]:
        return [step.placement_name for step in left_of(row)]

    @extend_schema_field(DrainStepSerializer(many=True))
    def get_placements(self, row: Drain) -> Any:
        return DrainStepSerializer(row.steps.order_by("placement_name"), many=True).data


class PlacementImpactSerializer(CamelCaseSerializer):
    """The impact of a drain on one placement."""

    placement = serializers.CharField()
    fate = serializers.ChoiceField([str(one) for one in EvictionImpact], source="impact")
    message = text("said")
    joins = names()
    placed_before = serializers.IntegerField()
    placed_after = serializers.IntegerField()


class DrainSerializer(CamelCaseSerializer):
    """The impact of draining a cluster now, and the progress of its last drain."""

    cluster = serializers.CharField()
    impact = PlacementImpactSerializer(many=True)
    unlooked = serializers.IntegerField(help_text=_UNCHECKED)
    drain = DrainProgressSerializer(allow_null=True)


class DrainOptionsSerializer(CamelCaseSerializer):
    """Options of a drain; one that is left out stays as it is, in a new drain its default."""

    at_once = serializers.IntegerField(
        required=False, min_value=1, max_value=100, help_text="Concurrent evictions (default: 5)."
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


class RescheduleImpactSerializer(CamelCaseSerializer):
    """What rescheduling a placement would change."""

    placement = serializers.CharField()
    joins = names()
    leaves = names()
    placed_before = serializers.IntegerField()
    placed_after = serializers.IntegerField()
    fulfilled = serializers.BooleanField(source="is_fulfilled")


class PlacementRestoreSerializer(CamelCaseSerializer):
    """Whether and how a placement would return to a cluster, and what that would change."""

    placement = serializers.CharField()
    how = serializers.ChoiceField([str(one) for one in Return])
    message = text("said")
    fresh = RescheduleImpactSerializer()


class RestorePlanSerializer(CamelCaseSerializer):
    """What the last drain evicted from a cluster, and how it would return."""

    cluster = serializers.CharField()
    cordoned = serializers.BooleanField(source="is_cordoned")
    placements = PlacementRestoreSerializer(many=True, source="rows")
    unlooked = serializers.IntegerField(help_text=_UNCHECKED)
