"""The table of dry runs, which no code uses any more: clusters answer within the request.

A running release before this one may still write it: the next release removes the model in a migration
named `…_contract` (`tests/migration_rules.py`).
"""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from fleetui.fields import SealedTextField
from placements.models.placements import LONGEST_FULL_NAME


class DryRun(HubRow):
    is_shown = False
    placement_name = models.CharField(max_length=LONGEST_FULL_NAME, blank=True)
    manifests = SealedTextField(blank=True)
    clusters = models.JSONField(default=list)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    run_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    results = models.JSONField(default=list)
    faults = models.JSONField(default=list)
    not_checked = models.JSONField(default=dict)
    left_out = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(
                fields=["run_at"], name="dry_run_due", condition=Q(run_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"dry run {self.pk}"
