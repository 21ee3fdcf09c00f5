"""Fields of objects on clusters, of their differences, and of dry runs."""

from datetime import datetime

from rest_framework import serializers

from clusters.drivers.readiness import Readiness
from placements.api.serializers import CamelCaseSerializer, Text, fields_of
from placements.explain.cluster_objects import (
    ClusterObject,
    Difference,
    FieldValues,
    LiveState,
)
from placements.explain.dry_runs import DryRunAnswer, DryRunResult, RefusedObject


@fields_of(FieldValues, path="A JSON pointer.")
class FieldValuesSerializer(CamelCaseSerializer):
    """A field that differs; a value is JSON, empty where the field is missing."""


@fields_of(
    Difference,
    "cluster",
    "type",
    "group",
    "version",
    "kind",
    "namespace",
    "name",
    "member_generation",
    "since",
    "observed_at",
    "differing_fields",
    "is_degraded",
    "is_truncated",
    member_generation="Null: missing on the cluster.",
    since="When the object was first found to differ.",
    is_degraded="All fields were compared: the dry run was rejected.",
    is_truncated="There are more differences than listed.",
)
class DifferenceSerializer(CamelCaseSerializer):
    """The differences of one object between its cluster and the hub."""

    differing_fields = FieldValuesSerializer(many=True, source="fields")


@fields_of(LiveState, "is_present", "uid", "readiness", "reason", "hint", "since")
class LiveStateSerializer(CamelCaseSerializer):
    """An object as it was last read on its cluster."""

    readiness = serializers.ChoiceField(
        [*map(str, Readiness), ""], help_text="Empty: missing, or not readable."
    )
    since = serializers.DateTimeField(
        source="since_time", help_text="Since when it is in this state."
    )


@fields_of(
    ClusterObject,
    "group",
    "version",
    "kind",
    "namespace",
    "name",
    "wave",
    "state",
    "reason",
    "message",
    "hint",
    "differences",
    "live",
    "envelope",
    "observed_at",
    wave="Objects are applied by wave, from 0.",
    reason="Such as `ManifestApplyFailed`.",
    message="The message of the cluster.",
    envelope="Kind and name of the envelope that wraps it on the hub.",
)
class ClusterObjectSerializer(CamelCaseSerializer):
    """One object of a placement on a cluster, as last observed."""

    differences = DifferenceSerializer(many=True)
    live = LiveStateSerializer(
        allow_null=True, help_text="Null where objects are not read one by one."
    )
    observed_at = serializers.SerializerMethodField()

    def get_observed_at(self, _one: ClusterObject) -> datetime | None:
        """Return when the objects on the cluster were last read."""
        moment: datetime | None = self.context["observed_at"]
        return moment


class ReapplySerializer(CamelCaseSerializer):
    """The clusters on which the same version is applied again."""

    clusters = serializers.ListField(
        child=Text(max_length=253), min_length=1, max_length=5000
    )


class DryRunInputSerializer(CamelCaseSerializer):
    """What is tried on the clusters."""

    clusters = serializers.ListField(
        child=Text(max_length=253),
        max_length=50,
        required=False,
        default=list,
        help_text="By default all that would be selected.",
    )
    manifests = serializers.ListField(
        child=serializers.DictField(),
        max_length=1000,
        required=False,
        default=list,
        help_text="The edit: manifests as for an apply. By default the placement is tried as it is.",
    )


@fields_of(RefusedObject)
class RefusedObjectSerializer(CamelCaseSerializer):
    """An object that a cluster would refuse, with its message."""


@fields_of(
    DryRunAnswer,
    unchecked="Not tried: what they need does not exist yet.",
    warnings="What the API server warns of, by object.",
)
class DryRunAnswerSerializer(CamelCaseSerializer):
    """What applying the edit would do on one cluster."""

    refusals = RefusedObjectSerializer(many=True)
    changes = DifferenceSerializer(many=True)


class DryRunSerializer(CamelCaseSerializer):
    """The answers of the clusters to a dry run, the worst first."""

    sentences = serializers.SerializerMethodField()
    answers = DryRunAnswerSerializer(many=True)
    not_checked = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Clusters without an API server, by driver.",
    )
    left_out = serializers.IntegerField(help_text="Clusters beyond the limit of 50.")

    def get_sentences(self, result: DryRunResult) -> list[str]:
        return [sentence.text for sentence in result.sentences()]
