"""Where notifications go."""

from uuid import uuid4

from django.db import models
from django.db.models import Q


class ChannelKind(models.TextChoices):
    """How a message is sent."""

    APPRISE = "apprise"
    WEBHOOK = "webhook"


class NotificationChannel(models.Model):
    """Where messages go. The address holds secrets: it is encrypted, and only its `summary` is shown."""

    uid = models.UUIDField(default=uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=7, choices=ChannelKind.choices)
    ciphertext = models.TextField()
    fingerprint = models.CharField(max_length=16)
    summary = models.CharField(max_length=200)
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=ChannelKind.values), name="channel_kind_known"),
            models.CheckConstraint(condition=~Q(ciphertext=""), name="channel_has_ciphertext"),
        ]

    def __str__(self) -> str:
        return self.name
