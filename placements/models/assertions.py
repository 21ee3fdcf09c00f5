"""The `.fleetui.yaml` of a hub, and the results of assertions of placements, as of the latest check."""

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from placements.models.placements import Placement


class StoredChecksFile(HubRow):
    """The `.fleetui.yaml` of a hub, as written: what is asserted of its placements."""

    text = models.TextField()
    revision = models.PositiveBigIntegerField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hub"], name="checks_file_once")]

    def __str__(self) -> str:
        return ".fleetui.yaml"


class AssertionCheck(HubRow):
    """The results for one placement that has assertions, as of a decision and a fleet.

    `others` has the placements that assertions name, as `|a|b|`; their decisions cause a new check.
    """

    placement = models.OneToOneField(
        Placement, models.CASCADE, related_name="assertion_check"
    )
    decisions_made = models.PositiveIntegerField()
    revision = models.PositiveIntegerField()
    fleet_version = models.PositiveBigIntegerField()
    checked_at = models.DateTimeField()
    others = models.TextField(blank=True)
    results = models.JSONField()
    broken = models.PositiveIntegerField()
    unknown = models.PositiveIntegerField()

    class Meta:
        indexes = [
            models.Index(
                fields=["hub"], name="broken_assertions", condition=Q(broken__gt=0)
            )
        ]

    def __str__(self) -> str:
        return f"assertions of {self.placement_id}"

    @property
    def holding(self) -> int:
        return len(self.results) - self.broken - self.unknown
