"""What rows of objects have in common that users write as manifests."""

from uuid import uuid4

from django.db import models

from clusters.models import HubRow
from fleetui.fields import OrderedJSONField


class ObjectRow(HubRow):
    """An object as written: `document` is its manifest without status, `revision` counts its changes."""

    uid = models.UUIDField(default=uuid4, editable=False)
    document = OrderedJSONField()
    revision = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        abstract = True
