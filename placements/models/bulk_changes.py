"""The table of changes of many clusters, which no code uses any more: they are made within the request.

A running release before this one may still write it: the next release removes the model in a migration
named `…_contract` (`tests/migration_rules.py`).
"""

from django.conf import settings
from django.db import models
from django.db.models import Q

from clusters.models import HubRow


class BulkChange(HubRow):
    is_shown = False
    request_id = models.CharField(max_length=32)
    action = models.CharField(max_length=20)
    options = models.JSONField(default=dict)
    names = models.JSONField(default=list)
    results = models.JSONField(default=list)
    created_at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    created_by = models.CharField(max_length=150)
    run_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["run_at"],
                name="bulk_change_due",
                condition=Q(run_at__isnull=False),
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["request_id"], name="bulk_change_request_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.action} of {len(self.names)} clusters"
