"""Decisions, and the fleets that they were made on."""

from django.db import models

from clusters.models import HubRow
from placements.models.placements import LONGEST_FULL_NAME, Placement


class FleetRecord(models.Model):
    """A fleet as decisions cite it: content-addressed, so that equal fleets are stored once."""

    digest = models.CharField(max_length=64, unique=True)
    content = models.BinaryField()
    clusters_count = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.clusters_count} clusters ({self.digest[:8]})"


class DecisionRecord(models.Model):
    """The record of a decision, under the hash of its inputs; the fleet that it cites is a separate row."""

    decision_id = models.CharField(max_length=34, unique=True)
    content = models.BinaryField()
    engine = models.CharField(max_length=20)
    fleet = models.ForeignKey(FleetRecord, models.PROTECT, related_name="+")
    verified_at = models.DateTimeField(null=True, db_index=True)
    """When it was decided, or decided again from what it stores; none: longer ago than is known."""
    fault = models.CharField(max_length=300, blank=True, default="")
    """Why the verification had another result; empty: it had the same."""

    class Meta:
        indexes = [
            models.Index("id", name="record_at_fault", condition=models.Q(fault__gt=""))
        ]

    def __str__(self) -> str:
        return self.decision_id


CHANGES_CLUSTERS = models.Q(number=1) | ~models.Q(joins_count=0, leaves_count=0)
"""The decisions that lists show unfolded: the first of a placement, and those that changed its clusters."""


class Decision(HubRow):
    """One scheduling cycle of a placement that decided something, numbered; it outlives the placement."""

    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="decisions"
    )
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
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
    joins_count = models.PositiveIntegerField(default=0)
    joins = models.JSONField(default=list)
    leaves_count = models.PositiveIntegerField(default=0)
    leaves = models.JSONField(default=list)
    milliseconds = models.FloatField()
    trigger = models.CharField(max_length=200)
    triggered_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(
                fields=["placement_name", "hub", "-id"], name="decision_of_placement"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "number"], name="decision_number_once"
            )
        ]

    def __str__(self) -> str:
        return f"decision {self.number} of {self.placement_name}"
