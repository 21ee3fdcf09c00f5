"""What-ifs as the API writes them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from placements.api.shapes.queries import PageQuery
from placements.models import HypotheticalDecision, Scenario
from placements.queries.what_if import Fate, Variant, done_count, fate_counts

_LONGEST = 400
_MOST_NAMES = 10_000
_COUNTS = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
    "description": "By variant, how many placements have which fate.",
}


class WhatIfShape(serializers.Serializer[object]):
    """A question: which clusters go; those named, and those that carry all of the labels."""

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
        help_text="Which answer the `result` leads to, `leave` by default; both are worked out.",
    )


class ScenarioShape(serializers.Serializer[Scenario]):
    """A question, and how far its answer is; under `result` stands what each placement would do."""

    id = serializers.IntegerField()
    clusters = serializers.ListField(child=serializers.CharField())
    chosenBy = serializers.CharField(source="chosen_by")
    state: Any = serializers.SerializerMethodField()
    done = serializers.SerializerMethodField()
    placements = serializers.IntegerField(source="placements_count")
    leftOut = serializers.IntegerField(source="left_out")
    fates: Any = serializers.SerializerMethodField()
    fleetVersion = serializers.IntegerField(source="fleet_version", allow_null=True)
    at = serializers.DateTimeField(source="created_at")
    by = serializers.CharField(source="created_by")
    result = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ChoiceField(["working", "answered"]))
    def get_state(self, row: Scenario) -> str:
        """Tell whether every placement was asked."""
        return "answered" if row.is_answered else "working"

    def get_done(self, row: Scenario) -> int:
        """Count the placements that were asked."""
        return row.placements_count if row.is_answered else done_count(row)

    @extend_schema_field(_COUNTS)
    def get_fates(self, row: Scenario) -> dict[str, dict[str, int]]:
        """Count the fates."""
        counts = fate_counts([row])
        return {variant: counts.get((row.pk, variant), {}) for variant in Variant.values}

    @extend_schema_field(serializers.URLField())
    def get_result(self, row: Scenario) -> str:  # noqa: ARG002 -- the signature is the framework's
        """Give the address of the first page of its placements."""
        return str(self.context["result"])


class OutcomeQuery(PageQuery):
    """Which placements of a scenario."""

    variant = serializers.ChoiceField(Variant.values, required=False, default=str(Variant.LEAVE))
    fate = serializers.ChoiceField([str(one) for one in Fate], required=False)


class JoiningShape(serializers.Serializer[object]):
    """A cluster that would join, with the scores of its pick."""

    cluster = serializers.CharField()
    topologySpreadScore = serializers.JSONField(allow_null=True)
    affinityScore = serializers.FloatField(allow_null=True)


class SupposedRow(serializers.Serializer[HypotheticalDecision]):
    """What one placement would do; `joins` and `leaves` are the first twenty."""

    placement = serializers.CharField(source="placement_name")
    variant = serializers.ChoiceField(Variant.values)
    fate = serializers.ChoiceField([str(one) for one in Fate])
    fulfilled = serializers.BooleanField(source="is_fulfilled")
    wanted = serializers.IntegerField(allow_null=True)
    placedBefore = serializers.IntegerField(source="placed_before")
    placedAfter = serializers.IntegerField(source="placed_after")
    joinsCount = serializers.IntegerField(source="joins_count")
    leavesCount = serializers.IntegerField(source="leaves_count")
    joins: Any = serializers.SerializerMethodField()
    leaves = serializers.ListField(child=serializers.CharField())
    message = serializers.CharField(source="why", allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    decision = serializers.CharField(source="record.decision_id")

    @extend_schema_field(JoiningShape(many=True))
    def get_joins(self, row: HypotheticalDecision) -> list[dict[str, Any]]:
        """Give the first of those that join."""
        return [
            {"cluster": name, "topologySpreadScore": topology, "affinityScore": affinity}
            for name, topology, affinity in row.pairs
        ]
