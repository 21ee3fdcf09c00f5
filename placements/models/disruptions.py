"""Evictions, disruption budgets and drains."""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from fleetui.fields import OrderedJSONField
from fleetui.hub_scope import LOCAL_HUB
from placements.models.closed_sets import known
from placements.models.objects import ObjectRow
from placements.models.placements import LONGEST_FULL_NAME, LONGEST_NAME, Placement

LONGEST_OBJECT_NAME = 253


class DisruptionBudget(ObjectRow):
    """How many clusters evictions may remove from the placement of the same name; it may exist before it."""

    name = models.CharField(max_length=LONGEST_OBJECT_NAME)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hub", "name"], name="budget_name_once"),
            models.CheckConstraint(condition=~Q(name=""), name="budget_has_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Drain(HubRow):
    """A drain of a cluster: it is cordoned, and one placement after another is evicted from it.

    At most `at_once` evictions are in progress at a time, and of one placement `per_placement` over all
    drains. The placements of `first` are evicted before the others, in that order; at the `deadline` the
    drain ends. A worker reconciles it from `requeue_at` on, and moves that time before it does.
    """

    class State(models.TextChoices):
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
    requeue_at = models.DateTimeField()
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=150)
    ended_at = models.DateTimeField(null=True)
    ended_reason = models.CharField(max_length=200, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["hub", "cluster_name", "-id"], name="drain_of_cluster"
            ),
            models.Index(
                fields=["hub", "requeue_at"],
                name="drain_requeue_due",
                condition=Q(state="running"),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "cluster_name"],
                condition=Q(state="running"),
                name="one_running_drain",
            ),
            known(
                "state",
                ("running", "done", "cancelled", "expired"),
                "drain_state_known",
            ),
            models.CheckConstraint(
                condition=Q(state="running", ended_at__isnull=True)
                | (~Q(state="running") & Q(ended_at__isnull=False)),
                name="drain_ended_at",
            ),
            models.CheckConstraint(
                condition=Q(at_once__gte=1, per_placement__gte=1),
                name="drain_moves_something",
            ),
        ]

    def __str__(self) -> str:
        return f"drain of {self.cluster_name}: {self.state}"


class DrainStep(HubRow):
    """Progress of a drain with one placement; `why` is what it waits for, or why the placement stays.

    What a budget blocked is tried again from `try_at` on.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        BLOCKED = "blocked"
        LEAVING = "leaving"
        NEXT_RUN = "next-run"
        GONE = "gone"
        STAYS = "stays"

    drain = models.ForeignKey(Drain, models.CASCADE, related_name="steps")
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    why = models.CharField(max_length=30, blank=True)
    numbers = models.JSONField(null=True)
    try_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["drain", "placement_name"], name="drain_step_once"
            ),
            known(
                "state",
                ("waiting", "blocked", "leaving", "next-run", "gone", "stays"),
                "drain_step_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.placement_name}: {self.state}"


class Eviction(HubRow):
    """A request to remove a placement from a cluster, and its result; never changed afterwards.

    `why` and `numbers` are those of `placements.engine.disruption`. One that came as a manifest keeps it
    under its name, and is not executed again when the same manifest is applied again. `hub_conditions` are
    those of an eviction of a live hub, which alone may be pending.
    """

    class Outcome(models.TextChoices):
        PENDING = "pending"
        EXECUTED = "executed"
        NOT_EXECUTED = "not-executed"
        INVALID = "invalid"

    name = models.CharField(max_length=LONGEST_OBJECT_NAME, null=True)  # noqa: DJ001 -- unique
    document = OrderedJSONField(null=True)
    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="evictions"
    )
    placement_name = models.CharField(max_length=LONGEST_OBJECT_NAME)
    cluster_name = models.CharField(max_length=LONGEST_OBJECT_NAME)
    drain = models.ForeignKey(
        Drain, models.SET_NULL, null=True, related_name="evictions"
    )
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    why = models.CharField(max_length=30, blank=True)
    numbers = models.JSONField(null=True)
    hub_conditions = models.JSONField(default=list)
    at = models.DateTimeField()
    by = models.CharField(max_length=150)

    class Meta:
        indexes = [
            models.Index(
                fields=["placement_name", "hub", "-id"], name="eviction_of_placement"
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["name", "hub"], name="eviction_name_once"),
            known(
                "outcome",
                ("pending", "executed", "not-executed", "invalid"),
                "eviction_outcome_known",
            ),
            models.CheckConstraint(
                condition=~Q(hub=LOCAL_HUB) | (~Q(outcome="pending") & ~Q(why="")),
                name="only_mirrored_eviction_is_pending",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.placement_name} from {self.cluster_name}: {self.outcome}"
