"""Problem details (RFC 9457), as `problems.py` writes them."""

from rest_framework import serializers


class FaultShape(serializers.Serializer[object]):
    """One thing that is wrong with what was sent."""

    path = serializers.CharField(help_text="Where, such as `spec.policy.numberOfClusters`.")
    code = serializers.CharField(help_text="Stable, for programs.")
    message = serializers.CharField()
    allowed = serializers.CharField(help_text="What would be allowed, where that can be said.")
    line = serializers.IntegerField(allow_null=True)
    document = serializers.CharField(required=False, help_text="Which part of the body.")


class ChangeShape(serializers.Serializer[object]):
    """What somebody saved in between."""

    by = serializers.CharField()
    what = serializers.CharField()
    at = serializers.DateTimeField()
    revision = serializers.IntegerField(allow_null=True)


class EmptiedShape(serializers.Serializer[object]):
    """A placement that a change would take off every cluster that it is on."""

    placement = serializers.CharField()
    clusters = serializers.ListField(child=serializers.CharField())


class Problem(serializers.Serializer[object]):
    """Why a request was refused."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    faults = FaultShape(many=True, required=False)
    faultsCount = serializers.IntegerField(required=False)
    revision = serializers.IntegerField(required=False)
    changes = ChangeShape(many=True, required=False)
    decisions = serializers.ListField(child=serializers.CharField(), required=False)
    confirm = serializers.CharField(
        required=False, help_text="Send the same again with this as the parameter `confirm`."
    )
    placements = EmptiedShape(many=True, required=False)
