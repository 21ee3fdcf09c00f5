"""Bindings: where a placement is."""

from django.db import models

from placements.models.closed_sets import one_of
from placements.models.decisions import Decision
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot
from placements.scheduling.bindings import BindingState


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
            models.CheckConstraint(condition=one_of("state", BindingState), name="binding_state_known"),
            models.CheckConstraint(
                condition=one_of("previous_state", (BindingState.SCHEDULED, BindingState.BOUND)),
                name="binding_previous_state_known",
            ),
        ]

    def __str__(self) -> str:
        """Say who is joined to whom."""
        return f"{self.placement_id} on {self.cluster_name}: {self.state}"
