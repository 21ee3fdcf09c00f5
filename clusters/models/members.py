"""Member clusters, and the counters of changes of the fleet."""

from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import models

from clusters.drivers.base import SIMULATED
from clusters.fleet import is_cordon
from clusters.hub_objects import SET_KINDS
from clusters.models.hubs import HubRow, StoredCredential
from fleetui.fields import OrderedJSONField
from fleetui.hub_scope import LOCAL_HUB

LONGEST_CLUSTER_NAME = 63
LONGEST_LABEL_KEY = 317  # a DNS prefix of 253, a slash, a name of 63
LONGEST_LABEL_VALUE = 63
NOT_UNHEALTHY = (
    "",
    "True",
)  # without a report of its health a cluster has a verdict of its own


class Membership(models.TextChoices):
    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"


class FleetState(HubRow):
    """The counters of the fleet of a hub, in its one row.

    `version` changes with labels, taints, membership and verdicts; `readings` with properties and usage;
    `sequence` with either, and the changed rows keep it (`MemberCluster.changed_in`). Tombstones up to the
    sequence `tombstones_deleted_to` are deleted.
    `observing_since` is the start of the current uninterrupted observation (`rules/lifecycle.md#heartbeats`).
    """

    version = models.PositiveBigIntegerField(default=1)
    readings = models.PositiveBigIntegerField(default=1)
    sequence = models.PositiveBigIntegerField(default=1)
    tombstones_deleted_to = models.PositiveBigIntegerField(default=0)
    observing_since = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hub"], name="fleet_state_once")]

    def __str__(self) -> str:
        return f"version {self.version}, readings {self.readings}"


class FleetChange(HubRow):
    """A change of the fleet that may affect placements; deleted once these are enqueued.

    `opens`: clusters joined, or taints or verdicts changed. `gone`: names that left or are leaving. `joins`:
    clusters joined. The clusters that changed have a `changed_in` of at least `sequence`.
    """

    sequence = models.PositiveBigIntegerField(default=0)
    joins = models.BooleanField(default=False)

    label_keys = models.JSONField(default=list)
    property_names = models.JSONField(default=list)
    opens = models.BooleanField(default=False)
    gone = models.JSONField(default=list)
    reason = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.reason


class FormerMember(HubRow):
    """A Kubernetes cluster that left the fleet, by its name then; what it holds of this console is its own.

    `cluster_uid` is the UID of its namespace `kube-system`. A cluster that joins is compared with these.
    """

    name = models.CharField(max_length=LONGEST_CLUSTER_NAME)
    cluster_uid = models.CharField(max_length=64)
    left_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name", "hub"], name="former_member_once"),
            models.CheckConstraint(
                condition=~models.Q(cluster_uid=""), name="former_member_has_uid"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class ClusterTombstone(HubRow):
    """A cluster that is no longer in the fleet, for processes that hold an older fleet (`FleetSnapshot`)."""

    name = models.CharField(max_length=LONGEST_CLUSTER_NAME)
    changed_in = models.PositiveBigIntegerField()
    deleted_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["hub", "changed_in"], name="tombstone_by_sequence")
        ]

    def __str__(self) -> str:
        return self.name


class MemberCluster(HubRow):
    """One member cluster.

    `document` is its manifest as it was written, without status; the rows of labels and taints are an index
    over it, written by the same operation. `verdict` is the kind of ineligibility
    (`rules/scheduler.md#eligibility`), empty when the cluster may be picked. Without a driver the cluster is
    not observed, so its report is judged as of the import (`as_of`); a cluster that never reported and need
    not is eligible. `spec_generation` is `metadata.generation`: labels and annotations do not raise it.
    `changed_in` is the sequence of the fleet at the last change that a scheduler reads. `uid` is that of this
    row alone: a cluster that joins again has another one. `health_message` names the health checks that fail,
    or the readings that are not permitted. `workloads_problem` is empty, or that several placements fail on
    this cluster and on no other. `unanswered_since` is when the first of the observations failed that were
    not answered since; `unanswered_code` says why the last one failed (`rules/kubernetes-driver.md#errors`).
    `observed_until` is until when the last observation counts (`clusters/observation.py`), null before the
    first one. `cluster_uid` is the UID of the namespace `kube-system` ("": not known yet), another one for
    each cluster; `rebuilt_at` is when it was last another one than before. `shares_server_with` names another
    member with the same API server: then nothing is removed from either. `inherited_names` are, with spaces,
    the members with that server that left while this one stayed. `managed` is what a hub of Open Cluster
    Management had of it at the last import: its object and its scores (`clusters/managed_cluster.py`).
    """

    name = models.CharField(max_length=LONGEST_CLUSTER_NAME)
    uid = models.UUIDField(default=uuid4, editable=False)
    document = OrderedJSONField()
    revision = models.PositiveBigIntegerField(default=1)
    spec_generation = models.PositiveBigIntegerField(default=1, db_default=1)
    hub_changes = models.PositiveBigIntegerField(
        default=0, db_default=0, editable=False
    )
    changed_in = models.PositiveBigIntegerField(default=0, editable=False)
    membership = models.CharField(
        max_length=8, choices=Membership.choices, default=Membership.JOINING
    )
    joined_at = models.DateTimeField()
    hub_created_at = models.DateTimeField(null=True, editable=False)
    leaving_since = models.DateTimeField(null=True, blank=True)
    is_demo = models.BooleanField(default=False)

    driver = models.CharField(max_length=30, blank=True)
    connection = models.JSONField(default=dict, blank=True)

    properties = models.JSONField(default=dict, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    namespaces_seen = models.JSONField(null=True, blank=True)
    collects_namespaces = models.BooleanField(default=False)
    expects_report = models.BooleanField(default=False)
    has_reported = models.BooleanField(default=False)
    as_of = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    agent_joined = models.CharField(max_length=20, blank=True)
    agent_healthy = models.CharField(max_length=20, blank=True)
    healthy_since = models.DateTimeField(null=True, blank=True)
    health_message = models.CharField(max_length=200, blank=True)
    workloads_problem = models.CharField(max_length=200, blank=True, db_default="")
    observe_at = models.DateTimeField(null=True, blank=True)
    unanswered_since = models.DateTimeField(null=True, blank=True)
    unanswered_code = models.CharField(max_length=30, blank=True)
    observed_until = models.DateTimeField(null=True, blank=True)
    inventory_at = models.DateTimeField(null=True, blank=True)
    cluster_uid = models.CharField(max_length=64, blank=True, default="", db_default="")
    rebuilt_at = models.DateTimeField(null=True, blank=True)
    shares_server_with = models.CharField(
        max_length=LONGEST_CLUSTER_NAME, blank=True, default="", db_default=""
    )
    inherited_names = models.TextField(blank=True, default="", db_default="")
    managed = models.JSONField(null=True, blank=True, editable=False)

    verdict = models.CharField(max_length=20, blank=True)
    verdict_reason = models.CharField(max_length=200, blank=True)
    verdict_since = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["hub", "name"], name="cluster_of_hub"),
            # Whether clusters are ready, without reading their long rows.
            models.Index(
                fields=[
                    "hub",
                    "name",
                    "driver",
                    "verdict",
                    "unanswered_since",
                    "membership",
                    "observed_until",
                    "agent_healthy",
                ],
                name="cluster_healthy_condition",
            ),
            models.Index(fields=["hub", "observe_at"], name="cluster_to_observe"),
            models.Index(fields=["hub", "changed_in"], name="cluster_by_sequence"),
            models.Index(fields=["hub", "verdict", "name"], name="cluster_by_verdict"),
            models.Index(
                fields=["hub", "unanswered_since"],
                condition=models.Q(unanswered_since__isnull=False),
                name="cluster_not_answering",
            ),
        ]
        constraints = [
            # The name first, for lookups through other tables, which know no hub.
            models.UniqueConstraint(fields=["name", "hub"], name="cluster_name_once"),
            models.CheckConstraint(
                condition=~models.Q(name=""), name="cluster_has_name"
            ),
            models.CheckConstraint(
                condition=models.Q(hub=LOCAL_HUB)
                | models.Q(driver="", observe_at__isnull=True),
                name="mirrored_cluster_is_not_called",
            ),
            models.CheckConstraint(
                condition=models.Q(membership__in=Membership.values),
                name="cluster_membership_known",
            ),
            models.CheckConstraint(
                condition=models.Q(
                    membership=Membership.LEAVING, leaving_since__isnull=False
                )
                | (
                    ~models.Q(membership=Membership.LEAVING)
                    & models.Q(leaving_since__isnull=True)
                ),
                name="cluster_leaving_since",
            ),
            models.CheckConstraint(
                condition=~models.Q(membership=Membership.LEAVING)
                | models.Q(verdict="leaving"),
                name="cluster_leaving_is_not_eligible",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def created_at(self) -> datetime:
        return self.hub_created_at or self.joined_at

    @property
    def joined_since(self) -> datetime | None:
        return None if self.membership == Membership.JOINING else self.joined_at

    @property
    def is_cordoned(self) -> bool:
        return any(map(is_cordon, self.document["spec"].get("taints") or ()))

    @property
    def is_eligible(self) -> bool:
        return not self.verdict

    @property
    def away_since(self) -> datetime | None:
        """Since when it does not answer, else of its readiness."""
        return self.unanswered_since or self.verdict_since

    @property
    def is_late(
        self,
    ) -> bool:  # it does not answer, and that does not make it ineligible yet
        return self.unanswered_since is not None and self.is_eligible

    @property
    def is_unhealthy(
        self,
    ) -> bool:  # it says so, and that does not make it ineligible yet
        is_reported = self.agent_healthy not in NOT_UNHEALTHY
        return is_reported and self.unanswered_since is None and self.is_eligible

    @property
    def awaits_first_heartbeat(
        self,
    ) -> bool:  # its driver has not observed it yet, nor failed to
        return (
            bool(self.driver)
            and not self.has_reported
            and self.unanswered_since is None
        )

    @property
    def is_monitored(self) -> bool:  # a driver observes it, or its own agent reports
        return bool(self.driver) or self.is_mirrored

    @property
    def is_simulated(self) -> bool:
        return self.driver == SIMULATED

    @property
    def has_insecure_tls(self) -> bool:
        return bool(self.connection.get("insecureTLS"))

    @property
    def annotations(self) -> dict[str, Any]:
        annotations: dict[str, Any] = (
            self.document.get("metadata", {}).get("annotations") or {}
        )
        return annotations


class ClusterLabel(HubRow):
    cluster = models.ForeignKey(MemberCluster, models.CASCADE, related_name="labels")
    key = models.CharField(max_length=LONGEST_LABEL_KEY)
    value = models.CharField(max_length=LONGEST_LABEL_VALUE, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["hub", "key", "value"], name="label_by_key_and_value")
        ]
        constraints = [
            models.UniqueConstraint(fields=["cluster", "key"], name="label_key_once"),
            models.CheckConstraint(condition=~models.Q(key=""), name="label_has_key"),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


class ClusterTaint(HubRow):
    """One taint of one cluster; the order is that of the rows."""

    cluster = models.ForeignKey(MemberCluster, models.CASCADE, related_name="taints")
    key = models.CharField(max_length=LONGEST_LABEL_KEY)
    value = models.CharField(max_length=LONGEST_LABEL_VALUE, blank=True)
    effect = models.CharField(max_length=20, default="NoSchedule")

    class Meta:
        indexes = [models.Index(fields=["key", "value"], name="taint_by_key_and_value")]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "key", "value", "effect"], name="taint_once"
            ),
            models.CheckConstraint(condition=~models.Q(key=""), name="taint_has_key"),
            models.CheckConstraint(
                condition=models.Q(effect="NoSchedule"), name="taint_effect_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


class ClusterSetObject(HubRow):
    """A set of clusters of Open Cluster Management, or its binding to a namespace, from an import.

    `selector` is the `clusterSelector` of a set.
    """

    kind = models.CharField(max_length=30)
    namespace = models.CharField(max_length=LONGEST_CLUSTER_NAME, blank=True)
    name = models.CharField(max_length=253)
    selector = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "kind", "namespace", "name"],
                name="cluster_set_object_once",
            ),
            models.CheckConstraint(
                condition=models.Q(kind__in=SET_KINDS),
                name="cluster_set_object_kind_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


class ClusterCredential(StoredCredential, HubRow):
    class Kind(models.TextChoices):
        TOKEN = "token"  # noqa: S105 -- a kind of secret
        CERTIFICATE = "certificate"

    cluster = models.OneToOneField(
        MemberCluster, models.CASCADE, related_name="credential"
    )
    kind = models.CharField(max_length=11, choices=Kind.choices)
    unauthorized_count = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(fields=["renew_at"], name="credential_to_renew"),
            models.Index(fields=["expires_at"], name="credential_by_expiry"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(kind__in=["token", "certificate"]),
                name="credential_kind_known",
            ),
            models.CheckConstraint(
                condition=~models.Q(ciphertext=""), name="credential_has_ciphertext"
            ),
        ]


class SimulatedPlacement(HubRow):
    """The state of a placement on a simulated cluster, with its call log (`clusters.drivers.simulated`).

    `revision` increases with every write, and a write names the revision that it is based on. The driver
    bounds the size of the content. The row of a removed placement keeps its fence. The row
    with an empty `placement_name` says which placements own each object of the cluster.
    """

    is_shown = False

    cluster = models.ForeignKey(
        MemberCluster, models.CASCADE, related_name="simulated_placements"
    )
    placement_name = models.CharField(max_length=253)
    revision = models.PositiveBigIntegerField()
    is_held = models.BooleanField()
    content = models.JSONField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster", "placement_name"], name="one_state_per_placement"
            )
        ]

    def __str__(self) -> str:
        return f"{self.placement_name}, revision {self.revision}"
