"""Dry runs: what clusters answer to an edit before it is saved."""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from fleetui.fields import SealedTextField
from placements.models.placements import LONGEST_FULL_NAME


class DryRun(HubRow):
    """Clusters report what an edit would change; nothing is written there or here.

    `manifests` is the edit as YAML, removed once the clusters answered: it may have Secrets. Of an empty one
    `placement_name` is tried as it is. `clusters`: those to check, by default all that would be selected. A
    worker runs it from `run_at` on, and moves that time before it does; None once it is done. `results` has
    an entry for each cluster that was checked, `faults` why the edit cannot be saved. `not_checked` counts
    the clusters without an API server, by their driver, and `left_out` those beyond the limit.
    """

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
        indexes = [models.Index(fields=["run_at"], name="dry_run_due", condition=Q(run_at__isnull=False))]

    def __str__(self) -> str:
        return f"dry run {self.pk}"

    @property
    def is_answered(self) -> bool:
        return self.run_at is None
