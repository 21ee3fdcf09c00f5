"""Tables of saved what-if analyses, which no code uses any more: a loss is evaluated within the request.

A running release before this one may still write them: the next release removes the models in a migration
named `…_contract` (`tests/migration_rules.py`).
"""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.closed_sets import known
from placements.models.decisions import DecisionRecord, FleetRecord
from placements.models.placements import LONGEST_FULL_NAME, Placement


class Scenario(HubRow):
    is_shown = False

    clusters = models.JSONField()
    chosen_by = models.CharField(max_length=400)
    name = models.CharField(max_length=63, blank=True, default="", db_default="")
    is_canceled = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    fleet_version = models.PositiveBigIntegerField(null=True)
    without = models.ForeignKey(
        FleetRecord, models.PROTECT, null=True, related_name="+"
    )
    cordoned = models.ForeignKey(
        FleetRecord, models.PROTECT, null=True, related_name="+"
    )
    placements_count = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0)
    evaluate_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["evaluate_at"],
                name="scenario_due",
                condition=Q(evaluate_at__isnull=False),
            )
        ]
        constraints = [
            models.CheckConstraint(
                condition=~Q(clusters=[]), name="scenario_has_clusters"
            )
        ]

    def __str__(self) -> str:
        return f"what if {self.chosen_by}"


class ScenarioDecision(HubRow):
    is_shown = False

    scenario = models.ForeignKey(Scenario, models.CASCADE, related_name="outcomes")
    variant = models.CharField(
        max_length=6, choices=[("leave", "Leave"), ("cordon", "Cordon")]
    )
    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="+"
    )
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    record = models.ForeignKey(
        DecisionRecord, models.PROTECT, related_name="scenario_decisions"
    )
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
                fields=["scenario", "variant", "rank", "placement_name"],
                name="scenario_decision_by_impact",
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["scenario", "variant", "placement_name"],
                name="scenario_decision_once",
            ),
            known("variant", ("leave", "cordon"), "scenario_decision_variant_known"),
        ]

    def __str__(self) -> str:
        return f"hypothetical decision on {self.placement_name}"
