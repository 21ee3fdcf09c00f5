"""Evictions, the budgets that hold them back, and drains that make one eviction after another."""

from django.db import models
from django.db.models import Q

from fleetui.written import WrittenField
from placements.models.closed_sets import one_of
from placements.models.placements import LONGEST_NAME, Placement

LONGEST_OBJECT_NAME = 253


class DisruptionBudget(models.Model):
    """How many clusters evictions may take from the placement of the same name; it may come before it."""

    name = models.CharField(max_length=LONGEST_OBJECT_NAME, unique=True)
    document = WrittenField()
    revision = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(name=""), name="budget_has_name")]

    def __str__(self) -> str:
        """Give its name."""
        return self.name


class Drain(models.Model):
    """A cluster is emptied: cordoned, and one placement after another evicted from it.

    At most `at_once` evictions are under way at a time, and of one placement `per_placement` over all drains.
    The placements of `first` go before the others, in that order; at the `deadline` it ends, come what may.
    A worker looks at it from `look_at` on, and moves that moment before it does.
    """

    class State(models.TextChoices):
        """How a drain stands."""

        RUNNING = "running"
        DONE = "done"
        CANCELLED = "cancelled"
        EXPIRED = "expired"

    cluster_name = models.CharField(max_length=LONGEST_NAME)
    state = models.CharField(max_length=9, choices=State.choices, default=State.RUNNING)
    at_once = models.PositiveIntegerField()
    per_placement = models.PositiveIntegerField()
    first = models.JSONField(default=list)
    deadline = models.DateTimeField(null=True)
    look_at = models.DateTimeField()
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=150)
    ended_at = models.DateTimeField(null=True)
    ended_because = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["cluster_name", "-id"], name="drain_of_cluster"),
            models.Index(fields=["look_at"], name="drain_to_look_at", condition=Q(state="running")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["cluster_name"], condition=Q(state="running"), name="one_running_drain"
            ),
            models.CheckConstraint(
                condition=one_of("state", ("running", "done", "cancelled", "expired")),
                name="drain_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state="running", ended_at__isnull=True)
                | (~Q(state="running") & Q(ended_at__isnull=False)),
                name="drain_ended_at",
            ),
            models.CheckConstraint(
                condition=Q(at_once__gte=1, per_placement__gte=1), name="drain_moves_something"
            ),
        ]

    def __str__(self) -> str:
        """Say of which cluster, and how it stands."""
        return f"drain of {self.cluster_name}: {self.state}"


class DrainStep(models.Model):
    """How far a drain is with one placement; `why` says what it waits for, or why the placement stays.

    What a budget held back is tried again from `try_at` on.
    """

    class State(models.TextChoices):
        """How far the placement is."""

        WAITING = "waiting"
        BLOCKED = "blocked"
        LEAVING = "leaving"
        NEXT_RUN = "next-run"
        GONE = "gone"
        STAYS = "stays"

    drain = models.ForeignKey(Drain, models.CASCADE, related_name="steps")
    placement_name = models.CharField(max_length=LONGEST_NAME)
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    why = models.CharField(max_length=30, blank=True)
    numbers = models.JSONField(null=True)
    try_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["drain", "placement_name"], name="drain_step_once"),
            models.CheckConstraint(
                condition=one_of("state", ("waiting", "blocked", "leaving", "next-run", "gone", "stays")),
                name="drain_step_state_known",
            ),
        ]

    def __str__(self) -> str:
        """Say how far the placement is."""
        return f"{self.placement_name}: {self.state}"


class Eviction(models.Model):
    """A placement was told to leave a cluster, and what became of that; never changed afterwards.

    `why` and `numbers` are those of `placements.rollout.disruption`. One that came as a document keeps it
    under its name, and is not carried out again when the same document comes again.
    """

    class Outcome(models.TextChoices):
        """What became of it."""

        EXECUTED = "executed"
        NOT_EXECUTED = "not-executed"
        INVALID = "invalid"

    name = models.CharField(max_length=LONGEST_OBJECT_NAME, null=True, unique=True)  # noqa: DJ001 -- unique
    document = WrittenField(null=True)
    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="evictions")
    placement_name = models.CharField(max_length=LONGEST_OBJECT_NAME)
    cluster_name = models.CharField(max_length=LONGEST_OBJECT_NAME)
    drain = models.ForeignKey(Drain, models.SET_NULL, null=True, related_name="evictions")
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    why = models.CharField(max_length=30)
    numbers = models.JSONField(null=True)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        indexes = [models.Index(fields=["placement_name", "-id"], name="eviction_of_placement")]
        constraints = [
            models.CheckConstraint(
                condition=one_of("outcome", ("executed", "not-executed", "invalid")),
                name="eviction_outcome_known",
            ),
        ]

    def __str__(self) -> str:
        """Say who from where."""
        return f"{self.placement_name} from {self.cluster_name}: {self.outcome}"
