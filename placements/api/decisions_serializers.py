"""Fields of decisions, previews and simulations; `placements.explain.document` writes most of them."""

from rest_framework import serializers

from fleetui.apimachinery.model import Semantics
from placements.api.serializers import (
    AnyObject,
    AnyValue,
    CamelCaseSerializer,
    DecisionRowSerializer,
    WarningSerializer,
    names,
)


class ReasonSerializer(CamelCaseSerializer):
    """One reason for the outcome of a cluster."""

    code = serializers.CharField()
    deciding = serializers.BooleanField()
    facts = AnyObject()
    words = serializers.CharField()


class OutcomeSerializer(CamelCaseSerializer):
    """The outcome of a cluster, with its reasons."""

    cluster = serializers.CharField()
    outcome = serializers.CharField()
    round = serializers.IntegerField(allow_null=True)
    stays = serializers.BooleanField()
    reasons = ReasonSerializer(many=True)


class RoundSerializer(CamelCaseSerializer):
    """One round: the domains and their skew, the winner and the runner-up."""

    round = serializers.IntegerField()
    groups = AnyObject(
        help_text="Clusters per domain, by topology key; key[index] where constraints share one."
    )
    measures = AnyObject(
        help_text="What the following two fields measure, by key: skew, or gap to the emptiest domain."
    )
    skew_before = AnyObject()
    skew_after = AnyObject()
    winner = serializers.CharField(allow_null=True)
    runner_up = serializers.CharField(allow_null=True)
    decided_by = serializers.CharField(allow_null=True)
    cut = AnyObject(required=False)
    candidates = serializers.ListField(child=AnyObject(), required=False)
    candidates_count = serializers.IntegerField(required=False)


class DecisionSerializer(CamelCaseSerializer):
    """The record of a decision; rounds and outcomes of a large one have their own addresses."""

    api_version = serializers.CharField()
    kind = serializers.CharField()
    id = serializers.CharField()
    semantics = serializers.CharField()
    fulfilled = serializers.BooleanField()
    picked = names()
    kept = names()
    unscheduled = names()
    not_found = names()
    scores = AnyObject()
    condition = AnyValue(allow_null=True)
    warnings = WarningSerializer(many=True)
    traps = serializers.ListField(child=serializers.CharField(), help_text="Sentences.")
    cycles = DecisionRowSerializer(many=True, help_text="The latest cycles with this decision.")
    number_of_rounds = serializers.IntegerField()
    number_of_clusters = serializers.IntegerField()
    rounds = RoundSerializer(many=True, allow_null=True, help_text="null if there are many.")
    outcomes = OutcomeSerializer(many=True, allow_null=True, help_text="null if there are many.")


class CandidacySerializer(CamelCaseSerializer):
    """One cluster in one round."""

    round = serializers.IntegerField()
    candidate = AnyObject()


class ClusterOutcomeSerializer(OutcomeSerializer):
    """The outcome of a cluster, and the rounds in which it was a candidate."""

    candidacies = CandidacySerializer(many=True)
    next = serializers.URLField(allow_null=True)


class SuggestionSerializer(CamelCaseSerializer):
    """A change that was evaluated."""

    change = AnyObject()
    up_to = AnyValue(allow_null=True)
    gains = names()
    losses = names()


class AdviceSerializer(CamelCaseSerializer):
    """Why a cluster was not selected, and which single changes would and would not select it."""

    cluster = serializers.CharField()
    outcome = OutcomeSerializer()
    would_help = SuggestionSerializer(many=True)
    would_not_help = SuggestionSerializer(many=True)
    not_tried = serializers.ListField(child=AnyObject())


class PickSerializer(CamelCaseSerializer):
    """A selected cluster with the scores of its round."""

    cluster = serializers.CharField()
    topology_spread_score = AnyValue(allow_null=True)
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
    groups = DomainSerializer(many=True, help_text="Only the largest and the smallest if there are many.")


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


class SimulateSerializer(CamelCaseSerializer):
    """A simulation, with the options of `manage.py simulate`."""

    clusters = AnyValue(help_text="MemberClusters, their List, or plain cases.")
    placement = AnyObject(help_text="A ClusterResourcePlacement, or an OCM Placement.")
    bindings = AnyValue(required=False, help_text="ClusterResourceBindings or plain cases.")
    snapshot = serializers.CharField(required=False)
    semantics = serializers.ChoiceField([*Semantics, "all"], required=False)
    now = serializers.DateTimeField(required=False)
    strict_health = serializers.BooleanField(required=False, default=False)
    step = serializers.IntegerField(required=False, min_value=1, max_value=10**9)
    why = serializers.CharField(required=False)


class DivergenceSerializer(CamelCaseSerializer):
    """The first difference between two scheduling rules, and its reason."""

    semantics = serializers.CharField()
    place = serializers.IntegerField(allow_null=True, help_text="null: the same clusters in the same order.")
    by_name = serializers.BooleanField(help_text="Whether only the order of names differs there.")
    words = serializers.CharField()


class ComparisonSerializer(CamelCaseSerializer):
    """The same inputs under several scheduling rules, and their first differences."""

    semantics = AnyObject(
        help_text="Decisions by scheduling rules; rounds and outcomes of large ones are null."
    )
    same_clusters = serializers.BooleanField(help_text="In any order.")
    first_difference = AnyValue(allow_null=True)
    compared_with = serializers.CharField(help_text="The scheduling rules of the decision or the document.")
    partings = DivergenceSerializer(many=True)
    refused = AnyObject(required=False)
