"""Where notifications go."""

from uuid import uuid4

from django.db import models
from django.db.models import Q


class ChannelKind(models.TextChoices):
    WEBHOOK = "webhook", "Webhook with signature"
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams (workflow)"
    MATTERMOST = "mattermost", "Mattermost"
    ROCKET_CHAT = "rocket-chat", "Rocket.Chat"
    GOOGLE_CHAT = "google-chat", "Google Chat"
    DISCORD = "discord", "Discord"
    TELEGRAM = "telegram", "Telegram"
    WEBEX = "webex", "Webex"
    GOTIFY = "gotify", "Gotify"
    NTFY = "ntfy", "ntfy"
    PAGERDUTY = "pagerduty", "PagerDuty"
    OPSGENIE = "opsgenie", "Opsgenie"
    EMAIL = "email", "E-mail"


FORMER_KIND = "apprise"
"""Of channels that were saved as one address for any service; a worker turns them into one of the kinds."""


class NotificationChannel(models.Model):
    """Where messages go. Its fields hold secrets: they are encrypted, and only the `summary` is shown."""

    uid = models.UUIDField(default=uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=16, choices=ChannelKind.choices)
    ciphertext = models.TextField()
    fingerprint = models.CharField(max_length=16)
    summary = models.CharField(max_length=200)
    is_enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, default="", db_default="")
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(ciphertext=""), name="channel_has_ciphertext"
            ),
        ]

    def __str__(self) -> str:
        return self.name
