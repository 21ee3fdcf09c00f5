"""Placements, their immutable snapshots, the decisions on them, and the bindings that follow."""

from collections.abc import Iterable

from django.db import models
from django.db.models import F, Q

from placements.scheduling.bindings import BindingState
from placements.scheduling.policy import PlacementType
from placements.scheduling.semantics import Semantics

LONGEST_NAME = 63


def _one_of(field: str, values: Iterable[str]) -> Q:
    return Q(**{f"{field}__in": [str(value) for value in values]})


class Resource(models.Model):
    """An object applied to the hub; identified as in Kubernetes, whatever its version."""

    group = models.CharField(max_length=253, blank=True)
    version = models.CharField(max_length=63)
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    labels = models.JSONField(default=dict)
    content = models.JSONField()
    revision = models.PositiveBigIntegerField(default=1)
    is_demo = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["namespace", "kind", "name"], name="resource_in_namespace")]
        constraints = [
            models.UniqueConstraint(fields=["group", "kind", "namespace", "name"], name="resource_once"),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(kind="") & ~Q(version=""), name="resource_is_named"
            ),
        ]

    def __str__(self) -> str:
        """Write it as people do: kind and name, with the namespace it lives in."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Placement(models.Model):
    """The wish: these resources, on these clusters, this carefully.

    `document` is the manifest as it was written, without status; the columns beside it are read off it.
    A scheduling cycle is due while `answered` is behind `asked`; a worker that takes it on holds the lease.
    Likewise its resources have to be selected anew while `resources_answered` is behind `resources_asked`.
    `keeps_looking` says that a change of the fleet may change the answer.
    """

    name = models.CharField(max_length=LONGEST_NAME, unique=True)
    document = models.JSONField()
    revision = models.PositiveBigIntegerField(default=1)
    is_demo = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    deleting_since = models.DateTimeField(null=True)

    placement_type = models.CharField(max_length=10)
    number_of_clusters = models.PositiveIntegerField(null=True)
    semantics = models.CharField(max_length=20)
    label_keys_read = models.JSONField(default=list)
    property_names_read = models.JSONField(default=list)
    revision_history_limit = models.PositiveIntegerField(default=10)

    asked = models.PositiveBigIntegerField(default=0)
    answered = models.PositiveBigIntegerField(default=0)
    resources_asked = models.PositiveBigIntegerField(default=0)
    resources_answered = models.PositiveBigIntegerField(default=0)
    asked_because = models.CharField(max_length=200)
    asked_by = models.CharField(max_length=150)
    lease_until = models.DateTimeField(null=True)
    lease_token = models.CharField(max_length=32, blank=True)

    keeps_looking = models.BooleanField(default=True)
    is_fulfilled = models.BooleanField(null=True)
    placed_count = models.PositiveIntegerField(default=0)
    decisions_made = models.PositiveIntegerField(default=0)
    selection_faults = models.JSONField(default=list)

    class Meta:
        indexes = [
            models.Index(fields=["lease_until"], name="placement_due", condition=Q(answered__lt=F("asked"))),
            models.Index(fields=["is_fulfilled", "name"], name="placement_by_fulfilment"),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(name=""), name="placement_has_name"),
            models.CheckConstraint(
                condition=Q(answered__lte=F("asked")), name="placement_answers_what_asked"
            ),
            models.CheckConstraint(
                condition=_one_of("placement_type", PlacementType), name="placement_type_known"
            ),
            models.CheckConstraint(
                condition=_one_of("semantics", Semantics), name="placement_semantics_known"
            ),
            models.CheckConstraint(
                condition=Q(placement_type=PlacementType.PICK_N.value, number_of_clusters__isnull=False)
                | (~Q(placement_type=PlacementType.PICK_N.value) & Q(number_of_clusters__isnull=True)),
                name="placement_number_goes_with_pick_n",
            ),
            models.CheckConstraint(
                condition=Q(revision_history_limit__gte=1, revision_history_limit__lte=1000),
                name="placement_history_limit",
            ),
        ]

    def __str__(self) -> str:
        """Give its name."""
        return self.name

    @property
    def wants_resources(self) -> bool:
        """Tell whether its resources have to be selected anew."""
        return self.resources_answered < self.resources_asked

    @property
    def is_due(self) -> bool:
        """Tell whether a scheduling cycle is due."""
        return self.answered < self.asked


class PolicySnapshot(models.Model):
    """An immutable, numbered copy of a placement's policy, its semantics and their options.

    The number of clusters is not part of it: changing that alone keeps the snapshot (lifecycle B.3.1).
    """

    placement = models.ForeignKey(Placement, models.CASCADE, related_name="policy_snapshots")
    number = models.PositiveIntegerField()
    content_hash = models.CharField(max_length=64)
    policy = models.JSONField()
    semantics = models.CharField(max_length=20)
    options = models.JSONField(default=dict)
    is_latest = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["placement", "number"], name="policy_snapshot_number_once"),
            models.UniqueConstraint(
                fields=["placement"], condition=Q(is_latest=True), name="one_latest_policy_snapshot"
            ),
            models.CheckConstraint(
                condition=_one_of("semantics", Semantics), name="policy_snapshot_semantics_known"
            ),
        ]

    def __str__(self) -> str:
        """Name it as the released system does."""
        return f"{self.placement.name}-{self.number}"


class ResourceSnapshot(models.Model):
    """An immutable, numbered copy of the resources that a placement selects; the content is in its parts."""

    placement = models.ForeignKey(Placement, models.CASCADE, related_name="resource_snapshots")
    number = models.PositiveIntegerField()
    content_hash = models.CharField(max_length=64)
    objects_count = models.PositiveIntegerField()
    identities = models.JSONField(default=list)
    is_latest = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["placement", "number"], name="resource_snapshot_number_once"),
            models.UniqueConstraint(
                fields=["placement"], condition=Q(is_latest=True), name="one_latest_resource_snapshot"
            ),
        ]

    def __str__(self) -> str:
        """Name it as the released system does."""
        return f"{self.placement.name}-{self.number}-snapshot"


class ResourceSnapshotPart(models.Model):
    """At most 800 KiB of a resource snapshot, in order; one larger object has a part of its own."""

    snapshot = models.ForeignKey(ResourceSnapshot, models.CASCADE, related_name="parts")
    position = models.PositiveIntegerField()
    manifests = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["snapshot", "position"], name="part_position_once")]

    def __str__(self) -> str:
        """Say which part of which snapshot."""
        return f"part {self.position} of snapshot {self.snapshot_id}"


class FleetRecord(models.Model):
    """A fleet as decisions cite it: content-addressed, so that equal fleets are stored once."""

    digest = models.CharField(max_length=64, unique=True)
    content = models.BinaryField()
    clusters_count = models.PositiveIntegerField()

    def __str__(self) -> str:
        """Say how large it is."""
        return f"{self.clusters_count} clusters ({self.digest[:8]})"


class DecisionRecord(models.Model):
    """The record of a decision, under the hash of its inputs; what it cites of the fleet stands beside it."""

    decision_id = models.CharField(max_length=34, unique=True)
    content = models.BinaryField()
    engine = models.CharField(max_length=20)
    fleet = models.ForeignKey(FleetRecord, models.PROTECT, related_name="+")

    def __str__(self) -> str:
        """Give its id."""
        return self.decision_id


class Decision(models.Model):
    """One scheduling cycle of a placement that decided something, numbered; it outlives the placement."""

    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="decisions")
    placement_name = models.CharField(max_length=LONGEST_NAME)
    number = models.PositiveIntegerField()
    record = models.ForeignKey(DecisionRecord, models.PROTECT, related_name="cycles")
    policy_number = models.PositiveIntegerField()
    fleet_digest = models.CharField(max_length=64)
    wanted = models.PositiveIntegerField(null=True)
    kind = models.CharField(max_length=20)
    is_fulfilled = models.BooleanField()
    picked_count = models.PositiveIntegerField()
    kept_count = models.PositiveIntegerField()
    unscheduled_count = models.PositiveIntegerField()
    joins = models.JSONField(default=list)
    leaves = models.JSONField(default=list)
    milliseconds = models.FloatField()
    because = models.CharField(max_length=200)
    asked_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["placement_name", "-id"], name="decision_of_placement")]
        constraints = [
            models.UniqueConstraint(fields=["placement", "number"], name="decision_number_once"),
        ]

    def __str__(self) -> str:
        """Say which cycle of which placement."""
        return f"decision {self.number} of {self.placement_name}"


class Binding(models.Model):
    """A placement joined to one cluster, by name: it may outlive the cluster's membership."""

    placement = models.ForeignKey(Placement, models.CASCADE, related_name="bindings")
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    state = models.CharField(max_length=11)
    previous_state = models.CharField(max_length=11, default=BindingState.SCHEDULED.value)
    policy_snapshot = models.ForeignKey(PolicySnapshot, models.RESTRICT, related_name="bindings")
    resource_snapshot = models.ForeignKey(
        ResourceSnapshot, models.RESTRICT, null=True, related_name="bindings"
    )
    decision = models.ForeignKey(Decision, models.PROTECT, related_name="+")
    topology_spread_score = models.JSONField(null=True)
    affinity_score = models.FloatField(null=True)
    picked_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["cluster_name", "state"], name="binding_of_cluster")]
        constraints = [
            models.UniqueConstraint(fields=["placement", "cluster_name"], name="binding_once"),
            models.CheckConstraint(condition=_one_of("state", BindingState), name="binding_state_known"),
            models.CheckConstraint(
                condition=_one_of("previous_state", (BindingState.SCHEDULED, BindingState.BOUND)),
                name="binding_previous_state_known",
            ),
        ]

    def __str__(self) -> str:
        """Say who is joined to whom."""
        return f"{self.placement_id} on {self.cluster_name}: {self.state}"
