"""Immutable, numbered copies of policies and of selected resources."""

from typing import Any

from django.db import models
from django.db.models import Q

from clusters.models import HubRow
from fleetui.apimachinery.model import Semantics
from fleetui.fields import ManifestField
from placements.engine.envelopes import applied_identities
from placements.models.closed_sets import known
from placements.models.placements import Placement


class NumberedSnapshot(HubRow):
    """What all snapshots have: immutable copies, numbered for each object from 0."""

    number = models.PositiveIntegerField()
    content_hash = models.CharField(max_length=64)
    is_latest = models.BooleanField(default=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)

    class Meta:
        abstract = True


class PolicySnapshot(NumberedSnapshot):
    """An immutable, numbered copy of a placement's policy, its semantics and their options.

    The number of clusters is not part of it: changing that alone keeps the snapshot
    (`rules/lifecycle.md#snapshots`).
    """

    placement = models.ForeignKey(
        Placement, models.CASCADE, related_name="policy_snapshots"
    )
    policy = models.JSONField()
    semantics = models.CharField(max_length=20)
    options = models.JSONField(default=dict)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "number"], name="policy_snapshot_number_once"
            ),
            models.UniqueConstraint(
                fields=["placement"],
                condition=Q(is_latest=True),
                name="one_latest_policy_snapshot",
            ),
            known("semantics", Semantics, "policy_snapshot_semantics_known"),
        ]

    def __str__(self) -> str:
        return f"{self.placement.name}-{self.number}"

    def policy_for(self, number: int | None) -> dict[str, Any]:
        """Return the policy for a number of clusters, which is no part of a snapshot."""
        if number is None:
            return dict(self.policy)
        return {**self.policy, "numberOfClusters": number}


class ResourceSnapshot(NumberedSnapshot):
    """An immutable, numbered copy of the resources that a placement selects; the content is in its parts.

    `identities` are apiVersion, kind, namespace and name of each; `wrapped_identities` the same of what is in
    envelopes, each with kind and name of its envelope. `revision_number` is the last revision of the
    placement that it was rolled out with, None where that is not recorded.
    """

    placement = models.ForeignKey(
        Placement, models.CASCADE, related_name="resource_snapshots"
    )
    revision_number = models.PositiveBigIntegerField(null=True)
    objects_count = models.PositiveIntegerField()
    identities = models.JSONField(default=list)
    wrapped_identities = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "number"], name="resource_snapshot_number_once"
            ),
            models.UniqueConstraint(
                fields=["placement"],
                condition=Q(is_latest=True),
                name="one_latest_resource_snapshot",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.placement.name}-{self.number}-snapshot"

    def roll_out_with(self, placement: Placement) -> int | None:
        """Record and return the revision of a placement that rolls it out; an older one keeps its own."""
        if self.is_latest:
            self.revision_number = placement.revision_with(self.number)
            self.save(update_fields=["revision_number"])
        return self.revision_number

    @property
    def applied_identities(self) -> list[Any]:
        """Return the identities of what it applies to clusters, where envelopes are not."""
        return applied_identities(self.identities, self.wrapped_identities)


class ResourceSnapshotPart(HubRow):
    """At most 800 KiB of a resource snapshot, in order; a larger object is alone in its part."""

    snapshot = models.ForeignKey(ResourceSnapshot, models.CASCADE, related_name="parts")
    position = models.PositiveIntegerField()
    manifests = ManifestField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["snapshot", "position"], name="part_position_once"
            )
        ]

    def __str__(self) -> str:
        return f"part {self.position} of snapshot {self.snapshot_id}"
