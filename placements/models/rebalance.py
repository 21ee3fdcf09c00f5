"""Table of rebalance plans, which no code uses any more.

A running release before this one may still write it: the next release removes the model in a migration named
`…_contract` (`tests/migration_rules.py`).
"""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.closed_sets import known
from placements.models.placements import Placement


class RebalancePlan(HubRow):
    is_shown = False

    class State(models.TextChoices):
        RUNNING = "running"
        PAUSED = "paused"
        STALE = "stale"
        COMPLETED = "completed"
        STOPPED = "stopped"
        ABANDONED = "abandoned"

    placement = models.ForeignKey(
        Placement, models.CASCADE, related_name="rebalance_plans"
    )
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=9, choices=State.choices, default=State.RUNNING)
    moves = models.PositiveIntegerField()
    policy_number = models.PositiveIntegerField()
    wanted = models.PositiveIntegerField()
    batches = models.JSONField()
    done = models.PositiveIntegerField(default=0)
    is_moving = models.BooleanField(default=False)
    placed_digest = models.CharField(max_length=64)
    waits_for = models.CharField(max_length=300, blank=True)
    requeue_at = models.DateTimeField()
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    ended_at = models.DateTimeField(null=True)
    ended_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["hub", "requeue_at"],
                name="rebalance_requeue_due",
                condition=Q(state="running"),
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "number"], name="rebalance_number_once"
            ),
            models.UniqueConstraint(
                fields=["placement"],
                condition=Q(state__in=["running", "paused"]),
                name="one_active_rebalance_plan",
            ),
            known(
                "state",
                ("running", "paused", "stale", "completed", "stopped", "abandoned"),
                "rebalance_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["running", "paused"], ended_at__isnull=True)
                | (~Q(state__in=["running", "paused"]) & Q(ended_at__isnull=False)),
                name="rebalance_ended_at",
            ),
        ]

    def __str__(self) -> str:
        return f"rebalance plan {self.number} of {self.placement_id}: {self.state}"
