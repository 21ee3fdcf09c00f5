"""Notifications: rules, and every message that was sent.

They belong to the console and not to one hub: a channel gets messages about all hubs.
"""

from django.db import models
from django.db.models import Q

from clusters.models import NotificationChannel
from placements.models.closed_sets import known
from placements.models.problems import Problem


class NotificationRule(models.Model):
    """Which problems are sent to a channel: by kind, and of the objects with a label or of all.

    Without `quiet_from` there are no quiet hours; they may cross midnight in `time_zone`. `reminder_hours` is
    0 for no reminders. Problems that started before `active_since` are not sent.
    """

    name = models.CharField(max_length=63, unique=True)
    channel = models.ForeignKey(
        NotificationChannel, models.CASCADE, related_name="rules"
    )
    events = models.JSONField()
    label_key = models.CharField(max_length=317, blank=True)
    label_value = models.CharField(max_length=63, blank=True)
    quiet_from = models.TimeField(null=True)
    quiet_until = models.TimeField(null=True)
    time_zone = models.CharField(max_length=64, default="UTC")
    reminder_hours = models.PositiveSmallIntegerField(default=0)
    sends_resolved = models.BooleanField(default=True)
    is_enabled = models.BooleanField(default=True)
    active_since = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(quiet_from__isnull=True, quiet_until__isnull=True)
                | Q(quiet_from__isnull=False, quiet_until__isnull=False),
                name="quiet_hours_are_whole",
            )
        ]

    def __str__(self) -> str:
        return self.name


class NotificationDelivery(models.Model):
    """One message to one channel, and the status of its delivery.

    `idempotence_key` names it: two workers create only one, and a receiver that receives it twice, because
    a worker was killed while sending, recognizes it. The worker that sends holds the lease.
    """

    class Kind(models.TextChoices):
        PROBLEM = "problem"
        REMINDER = "reminder"
        RESOLVED = "resolved"
        TEST = "test"

    class State(models.TextChoices):
        PENDING = "pending"
        SENT = "sent"
        GROUPED = "grouped"  # part of the message of another one
        CANCELED = "canceled"  # the problem ended before
        FAILED = "failed"

    channel = models.ForeignKey(
        NotificationChannel, models.CASCADE, related_name="deliveries"
    )
    rule = models.ForeignKey(
        NotificationRule, models.CASCADE, null=True, related_name="deliveries"
    )
    problem = models.ForeignKey(
        Problem, models.CASCADE, null=True, related_name="deliveries"
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    idempotence_key = models.CharField(max_length=100, unique=True)
    title = models.CharField(max_length=200)
    body = models.TextField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    due_at = models.DateTimeField()
    lease_expires_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at"], condition=Q(state="pending"), name="delivery_due"
            ),
            models.Index(fields=["-created_at", "-id"], name="delivery_by_time"),
        ]
        constraints = [
            known(
                "kind",
                ("problem", "reminder", "resolved", "test"),
                "delivery_kind_known",
            ),
            known(
                "state",
                ("pending", "sent", "grouped", "canceled", "failed"),
                "delivery_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.state}"
