"""Drafts: what somebody is typing and has not saved."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from placements.models.placements import Placement


class Draft(models.Model):
    """The text of a manifest as it was typed, comments included.

    `placement` is the one it edits, None for a new one, and for one that is gone by now; `base` and
    `revision` are its manifest and revision when the draft began, or was last carried over to what somebody
    else saved.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="drafts")
    text = models.TextField()
    base = models.JSONField(null=True)
    revision = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["owner", "-updated_at"], name="draft_of_owner")]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "placement"],
                condition=Q(placement__isnull=False),
                name="one_draft_of_a_placement",
            ),
            models.CheckConstraint(
                condition=Q(placement__isnull=True) | Q(base__isnull=False),
                name="draft_has_base_of_placement",
            ),
        ]

    def __str__(self) -> str:
        """Say whose draft of what it is."""
        return f"draft {self.pk} of {self.placement.name if self.placement else 'a new placement'}"
