"""Resilience reports: what the loss of every cluster and every domain does to the placements."""

from typing import Any

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.closed_sets import known
from placements.models.decisions import FleetRecord
from placements.models.placements import Placement

LONGEST_LEVEL, LONGEST_VALUE = 635, 127
"""Of pairs of domains: two label keys or values, and a sign between them."""
VARIANTS = ("down", "cordon", "leave")


class ResilienceReport(HubRow):
    """A run over all losses on one frozen fleet; the latest one keeps its losses, all keep their totals.

    A worker continues with it from `evaluate_at` on, and moves that time before it does; None once it is
    done. `done` is the number of evaluated losses; `totals` has the worst ones by level and variant. The
    record of the fleet may be pruned; a run that misses it starts again on the current one.
    """

    keys = models.JSONField()
    variants = models.JSONField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    fleet = models.ForeignKey(FleetRecord, models.SET_NULL, null=True, related_name="+")
    fleet_version = models.PositiveBigIntegerField(default=0)
    has_clusters = models.BooleanField(default=True)
    losses_count = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    placements_count = models.PositiveIntegerField(default=0)
    totals = models.JSONField(default=dict)
    evaluate_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["evaluate_at"],
                name="report_due",
                condition=Q(evaluate_at__isnull=False),
            ),
            models.Index(fields=["hub", "-completed_at"], name="report_by_completion"),
        ]

    def __str__(self) -> str:
        return f"resilience report {self.pk}"


class ResilienceLoss(HubRow):
    """One loss in one variant: the counts over all placements, and the packed cells.

    Of single clusters only the cells and rows in which something is lost are stored.
    """

    report = models.ForeignKey(ResilienceReport, models.CASCADE, related_name="losses")
    level = models.CharField(max_length=LONGEST_LEVEL)
    value = models.CharField(max_length=LONGEST_VALUE)
    variant = models.CharField(max_length=6)
    clusters_count = models.PositiveIntegerField()
    placements_count = models.PositiveIntegerField()
    lost = models.PositiveIntegerField()
    moved = models.PositiveIntegerField()
    unfulfilled = models.PositiveIntegerField()
    empty = models.PositiveIntegerField()
    cells = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["report", "variant", "level", "value"], name="loss_once"
            ),
            known("variant", VARIANTS, "loss_variant_known"),
        ]

    def __str__(self) -> str:
        return f"{self.level}={self.value}, {self.variant}"


class PlacementResilience(HubRow):
    """The result of the latest report for one placement, as of one of its decisions.

    `survives` has the levels as `|cluster|region|`, for filters. Without a weakest point its parts are empty.
    """

    placement = models.OneToOneField(
        Placement, models.CASCADE, related_name="resilience"
    )
    report = models.ForeignKey(
        ResilienceReport, models.CASCADE, related_name="placements"
    )
    decisions_made = models.PositiveIntegerField()
    survives = models.TextField(blank=True)
    weakest_level = models.CharField(max_length=LONGEST_LEVEL, blank=True)
    weakest_value = models.CharField(max_length=LONGEST_VALUE, blank=True)

    def __str__(self) -> str:
        return f"resilience of {self.placement_id}"

    @property
    def levels(self) -> list[str]:
        return [part for part in self.survives.split("|") if part]

    @property
    def weakest(self) -> dict[str, Any] | None:
        return (
            {"level": self.weakest_level, "value": self.weakest_value}
            if self.weakest_level
            else None
        )
