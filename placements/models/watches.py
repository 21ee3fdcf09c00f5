"""Tables of the change feed, which no code uses any more.

A running release before this one may still write them: the next release removes the models in a migration
named `…_contract` (`tests/migration_rules.py`).
"""

from django.db import models

from clusters.models import HubRow
from placements.models.closed_sets import known


class WatchedKind(models.TextChoices):
    """A collection that can be watched."""

    CLUSTERS = "clusters"
    PLACEMENTS = "placements"
    ROLLOUTS = "rollouts"
    STAGED_RUNS = "staged-runs"


class ChangeType(models.TextChoices):
    """What happened to an object, as in the watch of Kubernetes."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class CollectionState(HubRow):
    """How far the changes of a collection are numbered.

    `versions` has the digest and the name of every object, by primary key, as of `sequence`. Changes up to
    `oldest` are deleted. `pulse` is the version of the hub at the last comparison, at `compared_at`.
    """

    is_shown = False
    kind = models.CharField(max_length=11, choices=WatchedKind.choices)
    sequence = models.PositiveBigIntegerField()
    oldest = models.PositiveBigIntegerField()
    versions = models.JSONField(default=dict)
    pulse = models.CharField(max_length=400, blank=True)
    compared_at = models.DateTimeField()
    looked_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "kind"], name="collection_state_once"
            ),
            known("kind", WatchedKind, "collection_state_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}, {self.sequence}"


class CollectionChange(HubRow):
    is_shown = False
    kind = models.CharField(max_length=11, choices=WatchedKind.choices)
    sequence = models.PositiveBigIntegerField()
    type = models.CharField(max_length=8, choices=ChangeType.choices)
    object_id = models.PositiveBigIntegerField()
    name = models.CharField(max_length=330)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "kind", "sequence"], name="collection_change_once"
            ),
            known("kind", WatchedKind, "collection_change_kind_known"),
            known("type", ChangeType, "collection_change_type_known"),
        ]

    def __str__(self) -> str:
        return f"{self.sequence}: {self.type} {self.name}"
