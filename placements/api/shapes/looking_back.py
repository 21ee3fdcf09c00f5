"""The shapes of what looks over everything, or back: overview, search, history, comparisons."""

from rest_framework import serializers

from placements.api.shapes.manifests import AnyObject
from placements.queries.history import EntryKind


class SearchQuery(serializers.Serializer[object]):
    """What is searched for."""

    q = serializers.CharField(required=False, default="", allow_blank=True, max_length=400)


class OverviewShape(serializers.Serializer[object]):
    """The numbers of the first sentence of the overview."""

    clusters = serializers.IntegerField()
    placements = serializers.IntegerField()
    notFulfilled = serializers.IntegerField()
    selectorsAtFault = serializers.IntegerField()
    beingDecided = serializers.IntegerField()
    notEligible = serializers.IntegerField()
    leaving = serializers.IntegerField()
    runsRunning = serializers.IntegerField()
    runsWaiting = serializers.IntegerField(help_text="Runs that wait for somebody.")


class FoundRun(serializers.Serializer[object]):
    """A run that was found."""

    placement = serializers.CharField()
    number = serializers.IntegerField()


class FoundResource(serializers.Serializer[object]):
    """An object on the hub that was found."""

    group = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()


class FoundShape(serializers.Serializer[object]):
    """What was found, at most 20 of each kind."""

    clusters = serializers.ListField(child=serializers.CharField())
    placements = serializers.ListField(child=serializers.CharField())
    decisions = serializers.ListField(child=serializers.CharField())
    runs = FoundRun(many=True)
    resources = FoundResource(many=True)


class EntryShape(serializers.Serializer[object]):
    """One line of a history."""

    key = serializers.CharField(help_text="Its name in a comparison: `p3`, `s3`, or a decision's id.")
    kind = serializers.ChoiceField([str(one) for one in EntryKind])
    number = serializers.IntegerField()
    at = serializers.DateTimeField()
    by = serializers.CharField()
    because = serializers.CharField(help_text="Why a decision was asked for; else empty.")


class SideShape(serializers.Serializer[object]):
    """One of the two that are compared."""

    key = serializers.CharField()
    title = serializers.CharField()
    at = serializers.DateTimeField()
    by = serializers.CharField()
    sentence = serializers.CharField(help_text="The policy in one sentence; empty for resources.")
    decision = serializers.CharField(help_text="The decision that it stands for; empty without one.")


class ShiftShape(serializers.Serializer[object]):
    """A cluster that stays for another reason."""

    cluster = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()


class GroupCountShape(serializers.Serializer[object]):
    """How many clusters of a group have the placement."""

    key = serializers.CharField()
    group = serializers.CharField(allow_null=True, help_text="Null: clusters without the label.")
    before = serializers.IntegerField()
    after = serializers.IntegerField()
    clusters = serializers.IntegerField()


class DecisionDiffShape(serializers.Serializer[object]):
    """What two decisions did differently."""

    joins = serializers.ListField(child=serializers.CharField())
    leaves = serializers.ListField(child=serializers.CharField())
    stays = serializers.ListField(child=serializers.CharField())
    otherReasons = ShiftShape(many=True)
    groups = GroupCountShape(many=True)


class ResourceChangeShape(serializers.Serializer[object]):
    """A resource that came, went or changed."""

    did = serializers.CharField()
    name = serializers.CharField()


class MomentsShape(serializers.Serializer[object]):
    """Two moments of a placement side by side; null where there is nothing of that sort to compare."""

    before = SideShape()
    after = SideShape()
    manifests = AnyObject(allow_null=True, help_text="`before` and `after`, as they were saved.")
    decision = DecisionDiffShape(allow_null=True)
    resources = ResourceChangeShape(many=True, allow_null=True)
    sameResources = serializers.IntegerField()
