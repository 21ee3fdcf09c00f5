"""How near placements are to their limits, and the clusters that a new cycle would not pick."""

from django.db import models

from clusters.models import HubRow
from placements.models.placements import LONGEST_NAME, Placement


class StalenessCheck(HubRow):
    """How near a placement is to its limits; and its stale picks, which a new cycle would not pick.

    A worker computes it from time to time, for the fleet and the decision that it refers to. `skews` are key,
    skew, limit and whether it is hard; `headroom` is what the tightest limit leaves. `exceeded` are the hard
    limits that the placed clusters exceed (`placements.engine.limits.ExceededLimit`).
    """

    placement = models.OneToOneField(
        Placement, models.CASCADE, related_name="staleness_check"
    )
    fleet_version = models.PositiveBigIntegerField()
    readings = models.PositiveBigIntegerField()
    decisions_made = models.PositiveIntegerField()
    checked_at = models.DateTimeField()
    headroom = models.IntegerField(null=True)
    skews = models.JSONField(default=list)
    exceeded = models.JSONField(default=list, db_default=[])

    def __str__(self) -> str:
        return f"as of version {self.fleet_version}"


class StalePick(HubRow):
    """A cluster that a placement is on although rescheduling would not select it."""

    staleness_check = models.ForeignKey(
        StalenessCheck, models.CASCADE, related_name="stale"
    )
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    reason = models.TextField(blank=True, default="", db_default="")
    """Why rescheduling would not select it, without the period; "" from before it was stored."""

    class Meta:
        indexes = [models.Index(fields=["cluster_name"], name="stale_pick_of_cluster")]
        constraints = [
            models.UniqueConstraint(
                fields=["staleness_check", "cluster_name"], name="stale_pick_once"
            )
        ]

    def __str__(self) -> str:
        return self.cluster_name
