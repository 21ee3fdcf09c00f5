"""Resources on the hub."""

from uuid import uuid4

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from fleetui.fields import ManifestField


class Resource(HubRow):
    """An object applied to the hub; identified as in Kubernetes, whatever its version."""

    group = models.CharField(max_length=253, blank=True)
    version = models.CharField(max_length=63)
    kind = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=253)
    uid = models.UUIDField(default=uuid4, editable=False)
    labels = models.JSONField(default=dict)
    content = ManifestField()
    revision = models.PositiveBigIntegerField(default=1)
    spec_generation = models.PositiveBigIntegerField(default=1, db_default=1)
    is_demo = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        permissions = [("view_secrets", "Can view the values of Secrets")]
        indexes = [
            models.Index(
                fields=["hub", "namespace", "kind", "name"],
                name="resource_in_namespace",
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "group", "kind", "namespace", "name"],
                name="resource_once",
            ),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(kind="") & ~Q(version=""),
                name="resource_is_named",
            ),
        ]

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.namespace}/{self.name}"
            if self.namespace
            else f"{self.kind} {self.name}"
        )
