"""What rows of objects have in common that users write as manifests."""

from uuid import uuid4

from django.db import models

from clusters.models import HubRow
from fleetui.fields import OrderedJSONField


class ObjectRow(HubRow):
    """An object as written: `document` is its manifest without status, `revision` counts its changes.

    `spec_generation` is `metadata.generation`: it counts the changes of anything but the metadata.
    """

    uid = models.UUIDField(default=uuid4, editable=False)
    document = OrderedJSONField()
    revision = models.PositiveBigIntegerField(default=1)
    spec_generation = models.PositiveBigIntegerField(default=1, db_default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        abstract = True
