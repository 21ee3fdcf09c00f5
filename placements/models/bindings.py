"""Bindings: where a placement is."""

from django.db import models
from django.db.models import Q

from placements.models.closed_sets import one_of
from placements.models.decisions import Decision
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot
from placements.rollout.failures import FailureKind
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState


class Binding(models.Model):
    """A placement joined to one cluster, by name: it may outlive the cluster's membership.

    `running_version` is what was last started there, and `phase` how far it has come (`placements.rollout`).
    A call to the cluster is due from `work_at` on; a worker that makes it holds the lease. `timed_since` is
    when nothing but time could tell any more. `override_snapshots` are the keys of those that belong to what
    was last started. `failure` is of which kind, `faulty_objects` were refused or are not available,
    `faulty_override` did not apply (`placements.rollout.failures`); `message` says it to people. `conditions`
    are those of its status as last noted, each with its value and since when.
    """

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
    running_version = models.CharField(max_length=64, blank=True)
    override_snapshots = models.JSONField(default=list)
    phase = models.CharField(max_length=14, default=Phase.NOTHING.value)
    phase_since = models.DateTimeField(null=True)
    timed_since = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)
    message = models.CharField(max_length=500, blank=True)
    failure = models.CharField(max_length=11, blank=True)
    faulty_objects = models.JSONField(default=list)
    faulty_override = models.JSONField(null=True)
    conditions = models.JSONField(default=dict)
    work_at = models.DateTimeField(null=True)
    work_until = models.DateTimeField(null=True)
    work_token = models.CharField(max_length=32, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["cluster_name", "state"], name="binding_of_cluster"),
            models.Index(fields=["work_at"], name="binding_work_due", condition=Q(work_at__isnull=False)),
        ]
        constraints = [
            models.UniqueConstraint(fields=["placement", "cluster_name"], name="binding_once"),
            models.CheckConstraint(condition=one_of("state", BindingState), name="binding_state_known"),
            models.CheckConstraint(condition=one_of("phase", Phase), name="binding_phase_known"),
            models.CheckConstraint(
                condition=one_of("failure", ("", *FailureKind)), name="binding_failure_known"
            ),
            models.CheckConstraint(
                condition=~Q(state=BindingState.SCHEDULED.value) | Q(phase=Phase.NOTHING.value),
                name="binding_scheduled_means_nothing_started",
            ),
            models.CheckConstraint(
                condition=one_of("previous_state", (BindingState.SCHEDULED, BindingState.BOUND)),
                name="binding_previous_state_known",
            ),
        ]

    def __str__(self) -> str:
        """Say who is joined to whom."""
        return f"{self.placement_id} on {self.cluster_name}: {self.state}"
