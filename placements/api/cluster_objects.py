"""Fields of objects on clusters, of their differences, and of dry runs."""

from datetime import datetime

from rest_framework import serializers

from clusters.drivers.readiness import Readiness
from placements.api.serializers import CamelCaseSerializer, Text
from placements.explain.cluster_objects import (
    ClusterObject,
    DifferenceType,
    ObjectState,
)
from placements.explain.dry_runs import DryRunOutcome, DryRunResult


class FieldValuesSerializer(CamelCaseSerializer):
    """A field that differs; a value is JSON, empty where the field is missing."""

    path = serializers.CharField(help_text="A JSON pointer.")
    in_member = serializers.CharField(allow_blank=True)
    in_hub = serializers.CharField(allow_blank=True)


class DifferenceSerializer(CamelCaseSerializer):
    """The differences of one object between its cluster and the hub."""

    cluster = serializers.CharField()
    type = serializers.ChoiceField(list(map(str, DifferenceType)))
    group = serializers.CharField(allow_blank=True)
    version = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    member_generation = serializers.IntegerField(
        allow_null=True, help_text="Null: missing on the cluster."
    )
    since = serializers.DateTimeField(
        help_text="When the object was first found to differ."
    )
    observed_at = serializers.DateTimeField()
    differing_fields = FieldValuesSerializer(many=True, source="fields")
    is_degraded = serializers.BooleanField(
        help_text="All fields were compared: the dry run was rejected."
    )
    is_truncated = serializers.BooleanField(
        help_text="There are more differences than listed."
    )


class LiveStateSerializer(CamelCaseSerializer):
    """An object as it was last read on its cluster."""

    is_present = serializers.BooleanField()
    uid = serializers.CharField(allow_blank=True)
    readiness = serializers.ChoiceField(
        [*map(str, Readiness), ""], help_text="Empty: missing, or not readable."
    )
    reason = serializers.CharField(allow_blank=True)
    hint = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(
        source="since_time", help_text="Since when it is in this state."
    )


class ClusterObjectSerializer(CamelCaseSerializer):
    """One object of a placement on a cluster, as last observed."""

    group = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True)
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    wave = serializers.IntegerField(help_text="Objects are applied by wave, from 0.")
    state = serializers.ChoiceField(list(map(str, ObjectState)))
    reason = serializers.CharField(
        allow_blank=True, help_text="Such as `ManifestApplyFailed`."
    )
    message = serializers.CharField(
        allow_blank=True, help_text="The message of the cluster."
    )
    hint = serializers.CharField(allow_blank=True)
    differences = DifferenceSerializer(many=True)
    live = LiveStateSerializer(
        allow_null=True, help_text="Null where objects are not read one by one."
    )
    envelope = serializers.CharField(
        allow_blank=True,
        help_text="Kind and name of the envelope that wraps it on the hub.",
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


class RefusedObjectSerializer(CamelCaseSerializer):
    """An object that a cluster would refuse, with its message."""

    group = serializers.CharField(allow_blank=True)
    kind = serializers.CharField()
    namespace = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()


class DryRunAnswerSerializer(CamelCaseSerializer):
    """What applying the edit would do on one cluster."""

    placement = serializers.CharField()
    cluster = serializers.CharField()
    outcome = serializers.ChoiceField(list(map(str, DryRunOutcome)))
    message = serializers.CharField(allow_blank=True)
    refusals = RefusedObjectSerializer(many=True)
    changes = DifferenceSerializer(many=True)
    removed = serializers.ListField(child=serializers.CharField())
    unchecked = serializers.ListField(
        child=serializers.CharField(),
        help_text="Not tried: what they need does not exist yet.",
    )
    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="What the API server warns of, by object.",
    )


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
