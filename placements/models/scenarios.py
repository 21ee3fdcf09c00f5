"""Saved what-if analyses with their outcomes."""

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.closed_sets import known
from placements.models.decisions import DecisionRecord, FleetRecord
from placements.models.placements import LONGEST_FULL_NAME, LONGEST_NAME, Placement


class Scenario(HubRow):
    """What if these clusters left the fleet, or were cordoned and drained? Both are evaluated.

    A worker continues with it from `evaluate_at` on, and moves that time before it does; None once it is
    done. The two fleets are frozen when the evaluation starts, with the version of the fleet that they were
    made from, so that every placement is evaluated with the same ones. `chosen_by` describes how the
    clusters were chosen. One with a name is saved: it is not deleted with age.
    """

    clusters = models.JSONField()
    chosen_by = models.CharField(max_length=400)
    name = models.CharField(max_length=63, blank=True, default="", db_default="")
    is_canceled = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    fleet_version = models.PositiveBigIntegerField(null=True)
    without = models.ForeignKey(FleetRecord, models.PROTECT, null=True, related_name="+")
    cordoned = models.ForeignKey(FleetRecord, models.PROTECT, null=True, related_name="+")
    placements_count = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)
    evaluate_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["evaluate_at"], name="scenario_due", condition=Q(evaluate_at__isnull=False))
        ]
        constraints = [models.CheckConstraint(condition=~Q(clusters=[]), name="scenario_has_clusters")]

    def __str__(self) -> str:
        return f"what if {self.chosen_by}"

    @property
    def is_answered(self) -> bool:  # or canceled: no more is evaluated
        return self.evaluate_at is None

    @property
    def title(self) -> str:
        return self.name or self.chosen_by


class ScenarioDecision(HubRow):
    """Decision of one placement in a scenario: its last cycle with a change, and the clusters it moves."""

    class Variant(models.TextChoices):
        """How the clusters are removed."""

        LEAVE = "leave"
        CORDON = "cordon"

    scenario = models.ForeignKey(Scenario, models.CASCADE, related_name="outcomes")
    variant = models.CharField(max_length=6, choices=Variant.choices)
    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="+")
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    record = models.ForeignKey(DecisionRecord, models.PROTECT, related_name="scenario_decisions")
    policy_number = models.PositiveIntegerField()
    fleet_digest = models.CharField(max_length=64)
    milliseconds = models.FloatField()
    impact = models.CharField(max_length=10)
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
            models.Index(
                fields=["scenario", "variant", "rank", "placement_name"], name="scenario_decision_by_impact"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["scenario", "variant", "placement_name"], name="scenario_decision_once"
            ),
            known("variant", ("leave", "cordon"), "scenario_decision_variant_known"),
        ]

    def __str__(self) -> str:
        return f"hypothetical decision on {self.placement_name}"

    @property
    def created_at(self) -> datetime:
        return self.scenario.created_at

    @property
    def triggered_by(self) -> str:
        return self.scenario.created_by

    @property
    def trigger(self) -> str:
        return f"what if {self.scenario.chosen_by}"

    @property
    def pairs(self) -> list[tuple[str, Any, Any]]:
        return [(name, *scores) for name, scores in zip(self.joins, self.scores, strict=True)]


class StalenessCheck(HubRow):
    """How near a placement is to its limits; and its stale picks, which a new cycle would not pick.

    A worker computes it from time to time, for the fleet and the decision that it refers to. `skews` are key,
    skew, limit and whether it is hard; `headroom` is what the tightest limit leaves. `exceeded` are the hard
    limits that the placed clusters exceed (`placements.engine.balance.ExceededLimit`).
    """

    placement = models.OneToOneField(Placement, models.CASCADE, related_name="staleness_check")
    fleet_version = models.PositiveBigIntegerField()
    readings = models.PositiveBigIntegerField()
    decisions_made = models.PositiveIntegerField()
    checked_at = models.DateTimeField()
    headroom = models.IntegerField(null=True)
    skews = models.JSONField(default=list)
    exceeded = models.JSONField(default=list, db_default=[])

    def __str__(self) -> str:
        return f"as of version {self.fleet_version}"


class StalePick(HubRow):
    """A cluster that a placement is on although rescheduling would not select it."""

    staleness_check = models.ForeignKey(StalenessCheck, models.CASCADE, related_name="stale")
    cluster_name = models.CharField(max_length=LONGEST_NAME)

    class Meta:
        indexes = [models.Index(fields=["cluster_name"], name="stale_pick_of_cluster")]
        constraints = [
            models.UniqueConstraint(fields=["staleness_check", "cluster_name"], name="stale_pick_once")
        ]

    def __str__(self) -> str:
        return self.cluster_name
