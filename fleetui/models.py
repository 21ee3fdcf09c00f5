"""What both apps write down: events, who did what to which object."""

from enum import StrEnum
from typing import Any

from django.conf import settings
from django.db import models

from fleetui.fields import ManifestField
from fleetui.hub_scope import HubManager, current_hub_id
from fleetui.request_ids import current_request_id

LONGEST_NAME = 253


class AuditEventType(StrEnum):
    """The type of an event, as in Kubernetes."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Event(models.Model):
    """An action on one object; immutable.

    `revision` is that of the object after the change, so that events after a revision can be listed.
    Events of one change of many objects have the same `request_id`. Without an actor the
    console acted. `hub` is no foreign key: events outlive their hub.
    """

    hub = models.PositiveBigIntegerField(default=current_hub_id, editable=False)
    at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150)
    verb = models.CharField(max_length=40)
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=700)
    revision = models.PositiveBigIntegerField(null=True)
    before = ManifestField(null=True)
    after = ManifestField(null=True)
    request_id = models.CharField(
        max_length=32, blank=True, default=current_request_id, editable=False
    )
    is_warning = models.BooleanField(default=False, db_default=False)

    objects = HubManager()

    class Meta:
        indexes = [
            models.Index(
                fields=["hub", "kind", "name", "-at", "-id"], name="event_of_object"
            ),
            models.Index(
                fields=["hub", "actor_name", "-at", "-id"], name="event_of_actor"
            ),
            models.Index(fields=["hub", "-at", "-id"], name="event_by_time"),
            models.Index(fields=["hub", "-id"], name="event_latest"),
            models.Index(
                fields=["hub", "is_warning", "-at", "-id"], name="event_of_type"
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=~models.Q(verb=""), name="event_has_verb"),
            models.CheckConstraint(
                condition=~models.Q(kind="") & ~models.Q(name=""),
                name="event_has_object",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.kind} {self.name}"

    @property
    def type(self) -> AuditEventType:
        return AuditEventType.WARNING if self.is_warning else AuditEventType.NORMAL

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "by": self.actor_name,
            "what": self.verb,
            "at": self.at,
            "revision": self.revision,
        }


class WorkerHeartbeat(models.Model):
    """When a worker that reads a queue was last alive; written by its timer, however busy its tasks are.

    `waiting`: the updates that were due then and not started; `busy_since`: since when there were any.
    `since` is the first heartbeat. When the last sweep and the last round of observation ended, which beat
    starts and such a worker runs, is in the row of their queue.
    """

    queue = models.CharField(max_length=100, primary_key=True)
    at = models.DateTimeField()
    waiting = models.PositiveIntegerField(default=0)
    busy_since = models.DateTimeField(null=True)
    since = models.DateTimeField(null=True)
    swept_at = models.DateTimeField(null=True)
    observed_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.queue}: {self.at.isoformat()}"


class PeriodicWork(models.Model):
    """When work that is not due by any row, but from time to time, is due next."""

    name = models.CharField(max_length=40, primary_key=True)
    due_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.due_at.isoformat()}"
