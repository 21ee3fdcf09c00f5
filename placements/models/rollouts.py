"""Rollouts: one run after another carries what is wanted to the clusters; and what was started where."""

from django.db import models
from django.db.models import Q

from placements.models.closed_sets import one_of
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.snapshots import ResourceSnapshot


class Rollout(models.Model):
    """One run of a placement: from the first difference between wanted and running until there is none.

    `changes` moves with everything that happens in the run, for pages that ask whether they are behind.
    `answer` is what may happen next and why not more, as plain facts; `waves` are the names as planned.
    """

    class State(models.TextChoices):
        """How a run stands."""

        RUNNING = "running"
        FINISHED = "finished"
        SUPERSEDED = "superseded"
        STOPPED = "stopped"

    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="rollouts")
    placement_name = models.CharField(max_length=LONGEST_NAME)
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.RUNNING)
    resource_snapshot = models.ForeignKey(ResourceSnapshot, models.SET_NULL, null=True, related_name="+")
    resource_number = models.PositiveIntegerField(null=True)
    version = models.CharField(max_length=64, blank=True)
    is_deletion = models.BooleanField(default=False)
    because = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=150)
    ended_at = models.DateTimeField(null=True)
    ended_because = models.CharField(max_length=200, blank=True)
    changes = models.PositiveBigIntegerField(default=1)
    waves = models.JSONField(default=list)
    answer = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["placement_name", "-id"], name="rollout_of_placement")]
        constraints = [
            models.UniqueConstraint(fields=["placement", "number"], name="rollout_number_once"),
            models.UniqueConstraint(
                fields=["placement"], condition=Q(state="running"), name="one_running_rollout"
            ),
            models.CheckConstraint(
                condition=Q(state="running", ended_at__isnull=True)
                | (~Q(state="running") & Q(ended_at__isnull=False)),
                name="rollout_ended_at",
            ),
            models.CheckConstraint(
                condition=one_of("state", ("running", "finished", "superseded", "stopped")),
                name="rollout_state_known",
            ),
        ]

    def __str__(self) -> str:
        """Say which run of which placement."""
        return f"run {self.number} of {self.placement_name}"


class ClusterUpdate(models.Model):
    """One start on one cluster in a run, and what became of it."""

    class Outcome(models.TextChoices):
        """How a start ended; under way while empty."""

        AVAILABLE = "available"
        FAILED = "failed"
        REMOVED = "removed"
        SUPERSEDED = "superseded"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="updates")
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    what = models.CharField(max_length=10)
    version = models.CharField(max_length=64, blank=True)
    attempt = models.PositiveIntegerField(default=1)
    started_at = models.DateTimeField()
    applied_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True)
    message = models.CharField(max_length=500, blank=True)

    class Meta:
        indexes = [models.Index(fields=["rollout", "cluster_name", "-id"], name="update_of_cluster")]
        constraints = [
            models.UniqueConstraint(
                fields=["rollout", "cluster_name"], condition=Q(outcome=""), name="one_start_under_way"
            ),
            models.CheckConstraint(
                condition=Q(outcome="", ended_at__isnull=True) | (~Q(outcome="") & Q(ended_at__isnull=False)),
                name="update_ended_at",
            ),
        ]

    def __str__(self) -> str:
        """Say what was started where."""
        return f"{self.what} {self.cluster_name}"


class RolloutPoint(models.Model):
    """How many clusters of a run stood how at one moment, from one look at the rollout to the next.

    The counts and the lines are those of `placements.rollout.tally.Tally`; a new row is written when they
    have changed.
    """

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="points")
    at = models.DateTimeField()
    old = models.PositiveIntegerField()
    new = models.PositiveIntegerField()
    unavailable = models.PositiveIntegerField()
    removing = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    floor = models.PositiveIntegerField()
    ceiling = models.PositiveIntegerField()

    class Meta:
        indexes = [models.Index(fields=["rollout", "at"], name="point_of_rollout")]

    def __str__(self) -> str:
        """Say what was counted when."""
        return f"{self.at:%H:%M:%S}: {self.old + self.new} available of {self.number}"
