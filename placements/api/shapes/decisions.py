"""Decisions, previews, simulations: described only; `placements.explain.document` writes most of them."""

from rest_framework import serializers

from placements.api.shapes.manifests import AnyObject, AnyValue, CaveatShape
from placements.api.shapes.rows import DecisionRow
from placements.scheduling.semantics import Semantics


def _names() -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField())


class ReasonShape(serializers.Serializer[object]):
    """One reason for what became of a cluster."""

    code = serializers.CharField()
    deciding = serializers.BooleanField()
    facts = AnyObject()
    words = serializers.CharField()


class OutcomeShape(serializers.Serializer[object]):
    """What became of a cluster, and why."""

    cluster = serializers.CharField()
    outcome = serializers.CharField()
    round = serializers.IntegerField(allow_null=True)
    stays = serializers.BooleanField()
    reasons = ReasonShape(many=True)


class RoundShape(serializers.Serializer[object]):
    """One step: the groups and skews, who won, who came next."""

    round = serializers.IntegerField()
    groups = AnyObject(
        help_text="Clusters per group, by topology key; key[index] where constraints share one."
    )
    measures = AnyObject(help_text="What the two below are, by key: skew, or gap to the emptiest group.")
    skewBefore = AnyObject()
    skewAfter = AnyObject()
    winner = serializers.CharField(allow_null=True)
    runnerUp = serializers.CharField(allow_null=True)
    decidedBy = serializers.CharField(allow_null=True)
    cut = AnyObject(required=False)
    candidates = serializers.ListField(child=AnyObject(), required=False)
    candidatesCount = serializers.IntegerField(required=False)


class DecisionShape(serializers.Serializer[object]):
    """The record of a decision; rounds and outcomes of a large one are fetched by themselves."""

    apiVersion = serializers.CharField()
    kind = serializers.CharField()
    id = serializers.CharField()
    semantics = serializers.CharField()
    fulfilled = serializers.BooleanField()
    picked = _names()
    kept = _names()
    unscheduled = _names()
    notFound = _names()
    scores = AnyObject()
    condition = AnyValue(allow_null=True)
    warnings = CaveatShape(many=True)
    traps = serializers.ListField(child=serializers.CharField(), help_text="In words.")
    cycles = DecisionRow(many=True, help_text="The latest cycles that decided so.")
    numberOfRounds = serializers.IntegerField()
    numberOfClusters = serializers.IntegerField()
    rounds = RoundShape(many=True, allow_null=True, help_text="null where there are many.")
    outcomes = OutcomeShape(many=True, allow_null=True, help_text="null where there are many.")


class CandidacyShape(serializers.Serializer[object]):
    """One cluster in one round."""

    round = serializers.IntegerField()
    candidate = AnyObject()


class ClusterOutcomeShape(OutcomeShape):
    """What became of a cluster, and the rounds in which it competed."""

    candidacies = CandidacyShape(many=True)
    next = serializers.URLField(allow_null=True)


class SuggestionShape(serializers.Serializer[object]):
    """A change that was tried."""

    change = AnyObject()
    upTo = AnyValue(allow_null=True)
    gains = _names()
    losses = _names()


class AdviceShape(serializers.Serializer[object]):
    """Why a cluster was not picked, and which single changes would and would not get it picked."""

    cluster = serializers.CharField()
    outcome = OutcomeShape()
    wouldHelp = SuggestionShape(many=True)
    wouldNotHelp = SuggestionShape(many=True)
    notTried = serializers.ListField(child=AnyObject())


class PickShape(serializers.Serializer[object]):
    """A picked cluster with the scores of its round."""

    cluster = serializers.CharField()
    topologySpreadScore = AnyValue(allow_null=True)
    affinityScore = serializers.FloatField(allow_null=True)


class SomePicks(serializers.Serializer[object]):
    """How many, and the first of them."""

    count = serializers.IntegerField()
    first = PickShape(many=True)


class SomeNames(serializers.Serializer[object]):
    """How many, and the first of them."""

    count = serializers.IntegerField()
    first = _names()


class GroupShape(serializers.Serializer[object]):
    """One group of a topology key."""

    group = serializers.CharField()
    count = serializers.IntegerField()


class SpreadShape(serializers.Serializer[object]):
    """A spread constraint after the last pick."""

    topologyKey = serializers.CharField()
    maxSkew = serializers.IntegerField()
    hard = serializers.BooleanField()
    skew = serializers.IntegerField()
    groupsCount = serializers.IntegerField()
    groups = GroupShape(many=True, help_text="The largest and the smallest where there are many.")


class PreviewShape(serializers.Serializer[object]):
    """What saving a draft would decide."""

    decision = serializers.CharField()
    fulfilled = serializers.BooleanField()
    isIncremental = serializers.BooleanField()
    picked = SomePicks()
    joins = SomeNames()
    leaves = SomeNames()
    stays = SomeNames()
    selectedResources = serializers.IntegerField()
    spread = SpreadShape(many=True)
    warnings = CaveatShape(many=True)


class SimulateShape(serializers.Serializer[object]):
    """What to simulate: the words of `manage.py simulate`."""

    clusters = AnyValue(help_text="MemberClusters, their List, or plain cases.")
    placement = AnyObject(help_text="A ClusterResourcePlacement, or an OCM Placement.")
    bindings = AnyValue(required=False, help_text="ClusterResourceBindings or plain cases.")
    snapshot = serializers.CharField(required=False)
    semantics = serializers.ChoiceField([*Semantics, "all"], required=False)
    now = serializers.DateTimeField(required=False)
    strictHealth = serializers.BooleanField(required=False, default=False)
    step = serializers.IntegerField(required=False, min_value=1, max_value=10**9)
    why = serializers.CharField(required=False)


class PartingShape(serializers.Serializer[object]):
    """Where one semantics parts from that of the decision or the document, and why."""

    semantics = serializers.CharField()
    place = serializers.IntegerField(allow_null=True, help_text="null: the same clusters in the same order.")
    byName = serializers.BooleanField(help_text="There they differ in the order of names only.")
    words = serializers.CharField()


class ComparisonShape(serializers.Serializer[object]):
    """The same inputs under several semantics, and where their choices part."""

    semantics = AnyObject(
        help_text="Decisions by their rules; where many, rounds and outcomes are null unless simulated."
    )
    sameClusters = serializers.BooleanField(help_text="In whichever order.")
    firstDifference = AnyValue(allow_null=True)
    comparedWith = serializers.CharField(help_text="The semantics of the decision or the document.")
    partings = PartingShape(many=True)
    refused = AnyObject(required=False)
