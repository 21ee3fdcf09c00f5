"""Saved what-ifs: some clusters go, and what every placement would then do."""

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Q

from placements.models.closed_sets import one_of
from placements.models.decisions import DecisionRecord, FleetRecord
from placements.models.placements import LONGEST_NAME, Placement


class Scenario(models.Model):
    """What if these clusters left the fleet, or were cordoned and emptied? Both are answered.

    A worker goes on with it from `work_at` on, and moves that moment before it does; None when it is
    answered. The two fleets are frozen by the first look, with the version of the fleet that they were made
    from, so that every placement is asked about the same ones. `chosen_by` says in words how the clusters
    were chosen.
    """

    clusters = models.JSONField()
    chosen_by = models.CharField(max_length=400)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    fleet_version = models.PositiveBigIntegerField(null=True)
    without = models.ForeignKey(FleetRecord, models.PROTECT, null=True, related_name="+")
    cordoned = models.ForeignKey(FleetRecord, models.PROTECT, null=True, related_name="+")
    placements_count = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)
    work_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["work_at"], name="scenario_due", condition=Q(work_at__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(clusters=[]), name="scenario_has_clusters"),
        ]

    def __str__(self) -> str:
        """Say what was chosen."""
        return f"what if {self.chosen_by}"

    @property
    def is_answered(self) -> bool:
        """Tell whether every placement was asked."""
        return self.work_at is None


class HypotheticalDecision(models.Model):
    """What one placement would do in a scenario: its last cycle that changes something, and whom it moves.

    The record is one like any other, but nothing was carried out. `rank` orders the fates, the worst first;
    `joins` and `leaves` are the first few, `scores` those of `joins`: topology spread and affinity.
    """

    class Variant(models.TextChoices):
        """How the clusters go."""

        LEAVE = "leave"
        CORDON = "cordon"

    scenario = models.ForeignKey(Scenario, models.CASCADE, related_name="outcomes")
    variant = models.CharField(max_length=6, choices=Variant.choices)
    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="+")
    placement_name = models.CharField(max_length=LONGEST_NAME)
    record = models.ForeignKey(DecisionRecord, models.PROTECT, related_name="supposed")
    policy_number = models.PositiveIntegerField()
    fleet_digest = models.CharField(max_length=64)
    milliseconds = models.FloatField()
    fate = models.CharField(max_length=10)
    rank = models.PositiveSmallIntegerField()
    is_fulfilled = models.BooleanField()
    wanted = models.PositiveIntegerField(null=True)
    placed_before = models.PositiveIntegerField()
    placed_after = models.PositiveIntegerField()
    joins_count = models.PositiveIntegerField()
    leaves_count = models.PositiveIntegerField()
    joins = models.JSONField(default=list)
    scores = models.JSONField(default=list)
    leaves = models.JSONField(default=list)
    why = models.TextField(blank=True)
    note = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["scenario", "variant", "rank", "placement_name"], name="supposed_by_fate")
        ]
        constraints = [
            models.UniqueConstraint(fields=["scenario", "variant", "placement_name"], name="supposed_once"),
            models.CheckConstraint(
                condition=one_of("variant", ("leave", "cordon")), name="supposed_variant_known"
            ),
        ]

    def __str__(self) -> str:
        """Say of which placement."""
        return f"hypothetical decision on {self.placement_name}"

    @property
    def created_at(self) -> datetime:
        """Give when it was asked."""
        return self.scenario.created_at

    @property
    def asked_by(self) -> str:
        """Give who asked."""
        return self.scenario.created_by

    @property
    def because(self) -> str:
        """Give what was supposed."""
        return f"what if {self.scenario.chosen_by}"

    @property
    def pairs(self) -> list[tuple[str, Any, Any]]:
        """Give the first of those that join with their scores."""
        return [(name, *scores) for name, scores in zip(self.joins, self.scores, strict=True)]


class Freshness(models.Model):
    """How near a placement is to its limits; and its stale picks, which a run from scratch would pass over.

    Worked out now and then by a worker, for the fleet and the decision that stand beside it. `skews` are
    key, skew, limit and whether it is hard; `headroom` is what the tightest limit leaves.
    """

    placement = models.OneToOneField(Placement, models.CASCADE, related_name="freshness")
    fleet_version = models.PositiveBigIntegerField()
    readings = models.PositiveBigIntegerField()
    decisions_made = models.PositiveIntegerField()
    looked_at = models.DateTimeField()
    headroom = models.IntegerField(null=True)
    skews = models.JSONField(default=list)

    def __str__(self) -> str:
        """Say as of when."""
        return f"as of version {self.fleet_version}"


class StalePick(models.Model):
    """A cluster that a placement is on although a run from scratch would pass it over."""

    freshness = models.ForeignKey(Freshness, models.CASCADE, related_name="stale")
    cluster_name = models.CharField(max_length=LONGEST_NAME)

    class Meta:
        indexes = [models.Index(fields=["cluster_name"], name="stale_pick_of_cluster")]
        constraints = [models.UniqueConstraint(fields=["freshness", "cluster_name"], name="stale_pick_once")]

    def __str__(self) -> str:
        """Give the cluster."""
        return self.cluster_name
