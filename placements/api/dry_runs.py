"""Fields of dry runs: what clusters would make of an edit."""

from rest_framework import serializers

from placements.api.cluster_objects import DifferenceSerializer
from placements.api.serializers import CamelCaseSerializer, Text
from placements.explain.dry_runs import DryRunOutcome, DryRunResult


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
