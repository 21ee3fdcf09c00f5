"""Evictions, budgets, drains and faults as the API writes them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from placements.api.shapes.manifests import AnyObject
from placements.models import Drain, DrainStep, Eviction
from placements.queries.disruptions import left_of, said_of, step_sentence
from placements.queries.drain_impact import Fate
from placements.queries.fresh import Return

_NUMBERS = {
    "type": "object",
    "nullable": True,
    "additionalProperties": {"type": "integer"},
    "description": "`available`, `total`, `wanted`, and how many more may go: `allowed`.",
}


@extend_schema_field(_NUMBERS)
class NumbersField(serializers.JSONField):
    """The arithmetic of a budget."""


class BudgetManifest(serializers.Serializer[object]):
    """A ClusterResourcePlacementDisruptionBudget."""

    apiVersion = serializers.CharField()
    kind = serializers.ChoiceField(["ClusterResourcePlacementDisruptionBudget"])
    metadata = AnyObject()
    spec = AnyObject()


class ClusterWish(serializers.Serializer[object]):
    """Which cluster."""

    cluster = serializers.CharField()


class EvictionRow(serializers.Serializer[Eviction]):
    """A placement was told to leave a cluster, and what became of that."""

    id = serializers.IntegerField()
    placement = serializers.CharField(source="placement_name")
    cluster = serializers.CharField(source="cluster_name")
    outcome = serializers.ChoiceField(Eviction.Outcome.values)
    why = serializers.CharField(help_text="Stable, for programs.")
    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)
    drain = serializers.IntegerField(source="drain_id", allow_null=True)
    at = serializers.DateTimeField()
    by = serializers.CharField()

    def get_message(self, row: Eviction) -> str:
        """Say it in a sentence."""
        return said_of(row)


class DrainStepShape(serializers.Serializer[DrainStep]):
    """How far a drain is with one placement."""

    placement = serializers.CharField(source="placement_name")
    state = serializers.ChoiceField(DrainStep.State.values)
    why = serializers.CharField(allow_blank=True)
    message = serializers.SerializerMethodField()
    numbers = NumbersField(allow_null=True)
    since = serializers.DateTimeField(source="changed_at")

    def get_message(self, row: DrainStep) -> str:
        """Say it in a sentence."""
        return step_sentence(row)


class DrainProgress(serializers.Serializer[Drain]):
    """A drain, over or not."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(Drain.State.values)
    atOnce = serializers.IntegerField(source="at_once")
    order = serializers.ListField(
        child=serializers.CharField(), source="first", help_text="The placements that go before the others."
    )
    deadline = serializers.DateTimeField(allow_null=True, help_text="When it ends, whatever is left.")
    startedAt = serializers.DateTimeField(source="started_at")
    startedBy = serializers.CharField(source="started_by")
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)
    endedBecause = serializers.CharField(source="ended_because", allow_blank=True)
    left = serializers.SerializerMethodField(help_text="The placements that are not gone.")
    placements: Any = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_left(self, row: Drain) -> list[str]:
        """Name what has not been moved off."""
        return [step.placement_name for step in left_of(row)]

    @extend_schema_field(DrainStepShape(many=True))
    def get_placements(self, row: Drain) -> Any:
        """Give every placement, by name."""
        return [DrainStepShape(step).data for step in row.steps.order_by("placement_name")]


class DrainRowShape(serializers.Serializer[object]):
    """What draining would do to one placement."""

    placement = serializers.CharField()
    fate = serializers.ChoiceField([str(fate) for fate in Fate])
    message = serializers.CharField(source="said")
    joins = serializers.ListField(child=serializers.CharField())
    placedBefore = serializers.IntegerField(source="placed_before")
    placedAfter = serializers.IntegerField(source="placed_after")


class DrainShape(serializers.Serializer[object]):
    """What draining a cluster would do now, and how far its last drain is."""

    cluster = serializers.CharField()
    impact = DrainRowShape(many=True)
    unlooked = serializers.IntegerField(help_text="Placements that there were too many of to look at.")
    drain = DrainProgress(allow_null=True)


class PaceShape(serializers.Serializer[object]):
    """How a drain goes; what is left out stays as it is, for a new drain at its default."""

    atOnce = serializers.IntegerField(
        required=False, min_value=1, max_value=100, help_text="Evictions under way at a time; 5 by default."
    )
    deadlineSeconds = serializers.IntegerField(
        required=False, min_value=1, max_value=30 * 86400, help_text="When it ends, counted from now."
    )
    order = serializers.ListField(
        child=serializers.CharField(max_length=63),
        required=False,
        max_length=1000,
        help_text="Placements that go before the others, in this order; the others go by name.",
    )


class FreshShape(serializers.Serializer[object]):
    """What a fresh schedule of a placement would change."""

    placement = serializers.CharField()
    joins = serializers.ListField(child=serializers.CharField())
    leaves = serializers.ListField(child=serializers.CharField())
    placedBefore = serializers.IntegerField(source="placed_before")
    placedAfter = serializers.IntegerField(source="placed_after")
    fulfilled = serializers.BooleanField(source="is_fulfilled")


class BringBackRowShape(serializers.Serializer[object]):
    """Whether a placement would come back to a cluster, and what that would change."""

    placement = serializers.CharField()
    how = serializers.ChoiceField([str(one) for one in Return])
    message = serializers.CharField(source="said")
    fresh = FreshShape()


class BringBackShape(serializers.Serializer[object]):
    """What the last drain took off a cluster, and how it would come back."""

    cluster = serializers.CharField()
    cordoned = serializers.BooleanField(source="is_cordoned")
    placements = BringBackRowShape(many=True, source="rows")
    unlooked = serializers.IntegerField(help_text="Placements that there were too many of to look at.")
