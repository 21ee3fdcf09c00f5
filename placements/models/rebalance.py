"""Rebalance plans: moves of a placement that are applied batch by batch."""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.closed_sets import known
from placements.models.placements import Placement


class RebalancePlan(HubRow):
    """A plan of a placement, in batches of steps (`engine.exact.rebalance.RebalanceStep`).

    `done` batches are finished; with `is_moving` the bindings of the next one are written, and its rollout is
    awaited. The plan holds for one policy, one number of clusters and one set of clusters: `placed_digest` is
    that of the names that are selected between two batches. `waits_for` is a message for people. A worker
    reconciles a running plan from `requeue_at` on.
    """

    class State(models.TextChoices):
        RUNNING = "running"
        PAUSED = "paused"
        STALE = "stale"
        COMPLETED = "completed"
        STOPPED = "stopped"
        ABANDONED = "abandoned"

    placement = models.ForeignKey(Placement, models.CASCADE, related_name="rebalance_plans")
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
                fields=["hub", "requeue_at"], name="rebalance_requeue_due", condition=Q(state="running")
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["placement", "number"], name="rebalance_number_once"),
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

    @property
    def is_active(self) -> bool:
        return self.state in (self.State.RUNNING, self.State.PAUSED)

    @property
    def moves_left(self) -> int:
        first_open = self.done + int(self.is_moving)
        return sum(step["leave"] is not None for batch in self.batches[first_open:] for step in batch)
