"""Bindings: which clusters a placement is on, and what was observed there."""

from typing import Any

from django.db import models
from django.db.models import Q, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from clusters.models import HubRow
from fleetui.hub_scope import LOCAL_HUB
from placements.engine.rollout.state import FailureKind, Phase
from placements.manifests.binding import BindingState
from placements.models.closed_sets import known
from placements.models.decisions import Decision
from placements.models.placements import LONGEST_FULL_NAME, LONGEST_NAME, Placement
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot


def _status_column(condition: str) -> Any:
    """Return a column with the status of one of the `conditions`; "" without it."""
    return models.GeneratedField(
        expression=Coalesce(
            KT(f"conditions__{condition}__0"),
            Value(""),
            output_field=models.TextField(),
        ),
        output_field=models.TextField(),
        db_persist=True,
    )


class Binding(HubRow):
    """A placement joined to one cluster, by name: it may outlive the cluster's membership.

    `applied_version` is what was last started there, and `phase` how far it has come
    (`engine.rollout.state`). A call to the cluster is due from `next_call_at` on; the worker that makes it
    holds the lease, and `calls` counts the claims. `member_id` is the row of the member cluster when it was
    last selected. `untrackable_since` is when readiness became untrackable. `override_snapshots` are the keys
    of those that belong to what was last started. `failure` is the kind of failure, `failed_objects` were
    rejected or are not available, `failed_override` did not apply (`engine.rollout.state`); `message` is the
    text for people. `conditions` are those of its status as last recorded, each with its value and since
    when; the database derives `started_status` and `available_status` from them.

    Of clusters whose driver acts on it, `apply_strategy` is that of the last start (None: the defaults);
    `was_applied`: an apply reached the cluster; `objects_done` is set while one needs several calls;
    `unavailable_code`: why the last call had no answer; `drifted_objects` and `diffed_objects` are the
    differences found there, `repairs` the times at which drift was repaired, and `contested_since` is set
    while others change the same objects again and again (`rules/kubernetes-driver.md#observation`).
    `observed_at`: when the objects there were last read one by one; `objects_digest` changes with their
    states. `removal_check` is "behind" where the cluster has seen newer calls than this database knows of, so
    that an apply removes nothing there, "waiting" where something would be removed and waits for a person,
    and "confirmed" once one has confirmed it. `started_versions`: those that were started last, with spaces.
    `warnings` are those of the API server about the objects that were applied, or are being removed.

    A live hub decides elsewhere: its bindings have no decision, and no policy snapshot that it has pruned;
    `hub_name` is the name of the object there, `hub_conditions` are its conditions as the hub wrote them.
    """

    placement = models.ForeignKey(Placement, models.CASCADE, related_name="bindings")
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    member_id = models.PositiveBigIntegerField(null=True)
    state = models.CharField(max_length=11)
    previous_state = models.CharField(
        max_length=11, default=BindingState.SCHEDULED.value
    )
    policy_snapshot = models.ForeignKey(
        PolicySnapshot, models.RESTRICT, null=True, related_name="bindings"
    )
    resource_snapshot = models.ForeignKey(
        ResourceSnapshot, models.RESTRICT, null=True, related_name="bindings"
    )
    decision = models.ForeignKey(Decision, models.PROTECT, null=True, related_name="+")
    topology_spread_score = models.JSONField(null=True)
    affinity_score = models.FloatField(null=True)
    picked_at = models.DateTimeField()
    applied_version = models.CharField(max_length=64, blank=True)
    override_snapshots = models.JSONField(default=list)
    phase = models.CharField(max_length=14, default=Phase.NOT_STARTED.value)
    phase_changed_at = models.DateTimeField(null=True)
    untrackable_since = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)
    message = models.CharField(max_length=500, blank=True)
    failure = models.CharField(max_length=11, blank=True)
    failed_objects = models.JSONField(default=list)
    failed_override = models.JSONField(null=True)
    conditions = models.JSONField(default=dict)
    started_status = _status_column("RolloutStarted")
    available_status = _status_column("Available")
    hub_name = models.CharField(max_length=253, blank=True)
    hub_conditions = models.JSONField(default=list)
    apply_strategy = models.JSONField(null=True)
    was_applied = models.BooleanField(default=False)
    objects_done = models.PositiveIntegerField(null=True)
    unavailable_code = models.CharField(max_length=32, blank=True)
    drifted_objects = models.JSONField(default=list)
    diffed_objects = models.JSONField(default=list)
    repairs = models.JSONField(default=list)
    contested_since = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(null=True)
    objects_digest = models.CharField(max_length=32, blank=True)
    next_call_at = models.DateTimeField(null=True)
    call_lease_expires_at = models.DateTimeField(null=True)
    call_lease_token = models.CharField(max_length=32, blank=True)
    calls = models.PositiveBigIntegerField(default=0)
    removal_check = models.CharField(
        max_length=9, blank=True, default="", db_default=""
    )
    started_versions = models.TextField(blank=True, default="", db_default="")
    warnings = models.JSONField(default=list, db_default=[])

    class Meta:
        indexes = [
            models.Index(
                fields=["cluster_name", "hub", "state"], name="binding_of_cluster"
            ),
            # What the status of placements follows from, in the order in which it is grouped.
            models.Index(
                fields=[
                    "hub",
                    "placement",
                    "state",
                    "phase",
                    "started_status",
                    "available_status",
                    "failure",
                    "phase_changed_at",
                    "cluster_name",
                ],
                name="binding_status",
            ),
            models.Index(
                fields=["hub", "next_call_at"],
                name="binding_call_due",
                condition=Q(next_call_at__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "cluster_name"], name="binding_once"
            ),
            models.CheckConstraint(
                condition=Q(hub=LOCAL_HUB)
                | Q(
                    next_call_at__isnull=True,
                    call_lease_expires_at__isnull=True,
                    retry_at__isnull=True,
                ),
                name="mirrored_binding_is_not_called",
            ),
            models.CheckConstraint(
                condition=~Q(hub=LOCAL_HUB)
                | Q(policy_snapshot__isnull=False, decision__isnull=False),
                name="only_mirrored_binding_without_decision",
            ),
            known("state", BindingState, "binding_state_known"),
            known("phase", Phase, "binding_phase_known"),
            known("failure", ("", *FailureKind), "binding_failure_known"),
            models.CheckConstraint(
                condition=~Q(state=BindingState.SCHEDULED.value)
                | Q(phase=Phase.NOT_STARTED.value),
                name="binding_scheduled_means_nothing_started",
            ),
            known(
                "previous_state",
                (BindingState.SCHEDULED, BindingState.BOUND),
                "binding_previous_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.placement_id} on {self.cluster_name}: {self.state}"

    @property
    def apply_type(self) -> str:
        """Return the type of the apply strategy of the last start; "" for the default."""
        return str((self.apply_strategy or {}).get("type", ""))

    @property
    def fence(self) -> int:
        """Return a number that grows with each claim, and from one binding of a cluster to the next."""
        return (self.pk << 32) + self.calls

    def calls_beyond(self, fence: int) -> int:
        """Return the value of `calls` with which the next claim has a higher fence than this one."""
        return max(self.calls, fence - (self.pk << 32))


class ObservedObjects(HubRow):
    """The objects of a binding as they were on the cluster, in a separate table: no list needs them.

    `rows` are those of `explain.cluster_objects.LiveState`, written when one of them has changed.
    """

    binding = models.OneToOneField(
        Binding, models.CASCADE, primary_key=True, related_name="observed_objects"
    )
    rows = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{len(self.rows)} objects of binding {self.binding_id}"


class Leftover(HubRow):
    """What a placement left on a cluster on purpose: it was abandoned, or the cluster was out of reach."""

    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    noted_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster_name", "placement_name", "hub"], name="leftover_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.placement_name} on {self.cluster_name}"


class WaitingRemoval(HubRow):
    """What no binding wants on a cluster, without a request to remove it: it stays until a person decides.

    `objects_count` of the `of_objects` of this member would be removed; `reason` says why that is not
    done without a person.
    """

    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    objects_count = models.PositiveIntegerField()
    of_objects = models.PositiveIntegerField()
    reason = models.CharField(max_length=500)
    noted_at = models.DateTimeField()
    confirmed_at = models.DateTimeField(null=True)
    confirmed_by = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["cluster_name", "placement_name", "hub"],
                name="waiting_removal_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.placement_name} on {self.cluster_name}"
