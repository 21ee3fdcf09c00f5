"""Manifests and the parts of them that have addresses of their own; the operations check what is in them."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

Text = dict[str, Any]
_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
_LABEL_PATCH = {"type": "object", "additionalProperties": {"type": "string", "nullable": True}}
_OBJECT: Text = {"type": "object", "additionalProperties": True}


@extend_schema_field(_OBJECT)
class AnyObject(serializers.JSONField):
    """An object whose fields are told elsewhere."""


@extend_schema_field({})
class AnyValue(serializers.JSONField):
    """Any JSON value."""


@extend_schema_field(_LABELS)
class Labels(serializers.JSONField):
    """Labels by key."""


class Metadata(serializers.Serializer[object]):
    """What an object is called; every other field is kept too."""

    name = serializers.CharField()
    namespace = serializers.CharField(required=False)
    labels = Labels(required=False)
    annotations = Labels(required=False)


class ClusterManifest(serializers.Serializer[object]):
    """A MemberCluster; the status is ours, and what an edit says of it changes nothing."""

    apiVersion = serializers.ChoiceField(
        ["cluster.kubernetes-fleet.io/v1", "cluster.kubernetes-fleet.io/v1beta1"]
    )
    kind = serializers.ChoiceField(["MemberCluster"])
    metadata = AnyObject()
    spec = AnyObject()
    status = AnyObject(required=False)


class PlacementManifest(serializers.Serializer[object]):
    """A ClusterResourcePlacement, or a Placement of Open Cluster Management.

    The status is ours, and what an edit says of it changes nothing.
    """

    apiVersion = serializers.ChoiceField(
        [
            "placement.kubernetes-fleet.io/v1",
            "placement.kubernetes-fleet.io/v1beta1",
            "cluster.open-cluster-management.io/v1alpha1",
            "cluster.open-cluster-management.io/v1beta1",
        ]
    )
    kind = serializers.ChoiceField(["ClusterResourcePlacement", "Placement"])
    metadata = AnyObject()
    spec = AnyObject(required=False, help_text="A Placement of Open Cluster Management may do without it.")
    status = AnyObject(required=False)


class ResourceManifest(serializers.Serializer[object]):
    """Any Kubernetes object; fields beside these are kept."""

    apiVersion = serializers.CharField()
    kind = serializers.CharField()
    metadata = AnyObject()


class Taint(serializers.Serializer[object]):
    """A taint of a cluster."""

    key = serializers.CharField()
    value = serializers.CharField(required=False)
    effect = serializers.ChoiceField(["NoSchedule"])


class Usage(serializers.Serializer[object]):
    """Resources of a cluster by name."""

    capacity = Labels(required=False)
    allocatable = Labels(required=False)
    available = Labels(required=False)


class HeartbeatShape(serializers.Serializer[object]):
    """What the agent of a cluster reports; readings that are left out stay as they were."""

    healthy = serializers.BooleanField()
    properties = Labels(required=False)
    usage = Usage(required=False)


class VerdictShape(serializers.Serializer[object]):
    """Whether a cluster may be picked."""

    name = serializers.CharField()
    eligible = serializers.BooleanField(source="is_eligible")
    verdict = serializers.CharField()
    reason = serializers.CharField(source="verdict_reason")
    heartbeatAt = serializers.DateTimeField(source="heartbeat_at", allow_null=True)


class CaveatShape(serializers.Serializer[object]):
    """Something that was accepted and may surprise."""

    code = serializers.CharField()
    path = serializers.CharField()
    message = serializers.CharField()


class AppliedRow(serializers.Serializer[object]):
    """What became of one document."""

    kind = serializers.CharField(help_text="Such as `cluster`, `placement` or `resource`.")
    name = serializers.CharField()
    did = serializers.CharField(
        help_text="`created`, `joined`, `changed`, `unchanged`; `executed`, `not-executed`, `invalid`."
    )
    message = serializers.CharField(source="said", allow_blank=True, help_text="Why, of an eviction.")
    warnings = CaveatShape(many=True, source="caveats")


class AppliedShape(serializers.Serializer[object]):
    """What became of every document, in their order."""

    items = AppliedRow(many=True)


LABELS, LABEL_PATCH = _LABELS, _LABEL_PATCH
ANY_OBJECT = _OBJECT
