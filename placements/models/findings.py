"""What the checks find about placements, as of the latest check."""

from django.db import models

from clusters.models import HubRow
from placements.models.placements import Placement


class FindingsCheck(HubRow):
    """The findings about one placement, as of a revision and a fleet; `worst` has the first, worst first."""

    placement = models.OneToOneField(
        Placement, models.CASCADE, related_name="findings_check"
    )
    revision = models.PositiveBigIntegerField()
    fleet_version = models.PositiveBigIntegerField()
    checked_at = models.DateTimeField()
    errors = models.PositiveIntegerField()
    warnings = models.PositiveIntegerField()
    infos = models.PositiveIntegerField()
    muted = models.PositiveIntegerField()
    worst = models.JSONField()

    class Meta:
        db_table = "placements_doctorcheck"
        """The name of releases so far, which may still run."""

    def __str__(self) -> str:
        return f"findings of {self.placement_id}"

    @property
    def severe(self) -> int:
        return self.errors + self.warnings

    @property
    def total(self) -> int:
        return self.severe + self.infos
