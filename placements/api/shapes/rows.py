"""The rows of lists: rendered by these fields, and described by them."""

from typing import Any

from rest_framework import serializers

from clusters.models import MemberCluster
from fleetui.models import Event
from placements.api.shapes.manifests import AnyObject, AnyValue, Labels
from placements.models import (
    Binding,
    Decision,
    Placement,
    PolicySnapshot,
    Resource,
    ResourceSnapshot,
)
from placements.rollout.failures import FailureKind
from placements.rollout.state import Phase


class ClusterRow(serializers.Serializer[MemberCluster]):
    """A cluster in a list; its manifest has the rest."""

    name = serializers.CharField()
    revision = serializers.IntegerField()
    membership = serializers.CharField()
    eligible = serializers.BooleanField(source="is_eligible")
    verdict = serializers.CharField(help_text="Why it may not be picked; empty when it may.")
    verdictReason = serializers.CharField(source="verdict_reason")
    verdictSince = serializers.DateTimeField(source="verdict_since")
    joinedAt = serializers.DateTimeField(source="joined_at")
    heartbeatAt = serializers.DateTimeField(source="heartbeat_at", allow_null=True)
    driver = serializers.CharField()
    isDemo = serializers.BooleanField(source="is_demo")
    labels = serializers.SerializerMethodField()
    taints = serializers.SerializerMethodField()
    cordoned = serializers.SerializerMethodField()
    placements = serializers.SerializerMethodField(help_text="How many placements it has.")

    def get_labels(self, row: MemberCluster) -> dict[str, str]:
        """Give its labels."""
        found: dict[str, str] = row.document["metadata"].get("labels") or {}
        return found

    def get_taints(self, row: MemberCluster) -> list[dict[str, str]]:
        """Give its taints."""
        found: list[dict[str, str]] = row.document["spec"].get("taints") or []
        return found

    def get_cordoned(self, row: MemberCluster) -> bool:
        """Tell whether it is cordoned; the view has looked that up for the whole page."""
        return row.pk in self.context["cordoned"]

    def get_placements(self, row: MemberCluster) -> int:
        """Count what it has; the view has looked that up for the whole page."""
        return int(self.context["placements"].get(row.name, 0))


class ResourceRow(serializers.Serializer[Resource]):
    """An object on the hub in a list."""

    group = serializers.CharField()
    version = serializers.CharField()
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    labels = Labels()
    revision = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")
    isDemo = serializers.BooleanField(source="is_demo")


class PlacementRow(serializers.Serializer[Placement]):
    """A placement in a list; its manifest has the rest."""

    name = serializers.CharField()
    revision = serializers.IntegerField()
    type = serializers.CharField(source="placement_type")
    numberOfClusters = serializers.IntegerField(source="number_of_clusters", allow_null=True)
    semantics = serializers.CharField()
    fulfilled = serializers.BooleanField(source="is_fulfilled", allow_null=True)
    placed = serializers.IntegerField(source="placed_count")
    pending = serializers.BooleanField(source="is_due")
    selectionFaults = AnyValue(source="selection_faults")
    deletingSince = serializers.DateTimeField(source="deleting_since", allow_null=True)
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")
    isDemo = serializers.BooleanField(source="is_demo")
    decision = serializers.SerializerMethodField()

    def get_decision(self, row: Placement) -> str | None:
        """Give the id of its latest decision; the view has looked that up for the whole page."""
        found: Decision | None = self.context["decisions"].get(row.pk)
        return found.record.decision_id if found else None


class BindingRow(serializers.Serializer[Binding]):
    """A placement joined to one cluster."""

    placement = serializers.CharField(source="placement.name")
    cluster = serializers.CharField(source="cluster_name")
    state = serializers.CharField()
    previousState = serializers.CharField(source="previous_state")
    policySnapshot = serializers.IntegerField(source="policy_snapshot.number")
    resourceSnapshot = serializers.SerializerMethodField()
    decision = serializers.CharField(source="decision.record.decision_id")
    topologySpreadScore = AnyValue(source="topology_spread_score", allow_null=True)
    affinityScore = serializers.FloatField(source="affinity_score", allow_null=True)
    pickedAt = serializers.DateTimeField(source="picked_at")
    phase = serializers.ChoiceField(list(map(str, Phase)), help_text="How far the cluster is.")
    failure = serializers.ChoiceField(
        ["", *map(str, FailureKind)], help_text="What kind of failure it was; empty where there is none."
    )
    failedObjects = AnyValue(
        source="faulty_objects", help_text="The objects that were refused, or are not available yet."
    )
    failedOverride = AnyValue(
        source="faulty_override", allow_null=True, help_text="The override that did not apply, with its path."
    )
    message = serializers.CharField(allow_blank=True)

    def get_resourceSnapshot(self, row: Binding) -> int | None:  # noqa: N802 -- named after its field
        """Give the number of what it has, None before anything was carried out."""
        return row.resource_snapshot.number if row.resource_snapshot else None


class PolicySnapshotRow(serializers.Serializer[PolicySnapshot]):
    """A frozen policy; the number of clusters is not part of it."""

    name = serializers.CharField(source="__str__")
    number = serializers.IntegerField()
    latest = serializers.BooleanField(source="is_latest")
    semantics = serializers.CharField()
    options = AnyObject()
    policy = AnyObject()
    contentHash = serializers.CharField(source="content_hash")
    createdAt = serializers.DateTimeField(source="created_at")
    createdBy = serializers.CharField(source="created_by")


class ResourceSnapshotRow(serializers.Serializer[ResourceSnapshot]):
    """Frozen resources, without their content."""

    name = serializers.CharField(source="__str__")
    number = serializers.IntegerField()
    latest = serializers.BooleanField(source="is_latest")
    objects = serializers.IntegerField(source="objects_count")
    contentHash = serializers.CharField(source="content_hash")
    createdAt = serializers.DateTimeField(source="created_at")
    createdBy = serializers.CharField(source="created_by")


class DecisionRow(serializers.Serializer[Decision]):
    """One scheduling cycle of one placement."""

    id = serializers.CharField(source="record.decision_id")
    placement = serializers.CharField(source="placement_name")
    number = serializers.IntegerField()
    kind = serializers.CharField()
    fulfilled = serializers.BooleanField(source="is_fulfilled")
    policySnapshot = serializers.IntegerField(source="policy_number")
    wanted = serializers.IntegerField(allow_null=True)
    picked = serializers.IntegerField(source="picked_count")
    kept = serializers.IntegerField(source="kept_count")
    unscheduled = serializers.IntegerField(source="unscheduled_count")
    joins = serializers.ListField(child=serializers.CharField(), help_text="The first of them.")
    leaves = serializers.ListField(child=serializers.CharField(), help_text="The first of them.")
    milliseconds = serializers.FloatField()
    because = serializers.CharField()
    askedBy = serializers.CharField(source="asked_by")
    createdAt = serializers.DateTimeField(source="created_at")


class EventRow(serializers.Serializer[Event]):
    """Somebody did something to an object."""

    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    by = serializers.CharField(source="actor_name")
    what = serializers.CharField(source="verb")
    kind = serializers.CharField()
    name = serializers.CharField()
    revision = serializers.IntegerField(allow_null=True)


class EventShape(EventRow):
    """The same with what was there before and after."""

    before: Any = AnyValue(allow_null=True)
    after: Any = AnyValue(allow_null=True)


class ResourceSnapshotShape(ResourceSnapshotRow):
    """Frozen resources with one part of their content; large snapshots have several parts."""

    identities = AnyValue(help_text="apiVersion, kind, namespace and name of every object.")
    part = serializers.IntegerField()
    parts = serializers.IntegerField()
    manifests = serializers.ListField(child=AnyObject())


class DeletedShape(serializers.Serializer[object]):
    """What is gone, as people write it."""

    items = serializers.ListField(child=serializers.CharField())
