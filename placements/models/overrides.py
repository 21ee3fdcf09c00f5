"""Overrides and their immutable snapshots."""

from django.db import models

from clusters.models import HubRow
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND
from fleetui.apimachinery.words import full_name
from fleetui.fields import ManifestField
from fleetui.hub_scope import LOCAL_HUB
from placements.models.closed_sets import known
from placements.models.full_names import LONGEST_NAMESPACE
from placements.models.objects import ObjectRow
from placements.models.snapshots import NumberedSnapshot

OVERRIDE_KINDS = (CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND)
_LONGEST_NAME = 253


class Override(ObjectRow):
    """An override as it was written; `placement_name` is the full name, empty for every placement."""

    kind = models.CharField(max_length=30)
    namespace = models.CharField(max_length=63, blank=True)
    name = models.CharField(max_length=_LONGEST_NAME)
    document = ManifestField()
    placement_name = models.CharField(
        max_length=LONGEST_NAMESPACE + 1 + _LONGEST_NAME, blank=True
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "kind", "namespace", "name"], name="override_once"
            ),
            known("kind", OVERRIDE_KINDS, "override_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.label}"

    @property
    def label(self) -> str:
        return full_name(self.namespace, self.name)


class OverrideTarget(HubRow):
    """A resource that an override changes; no other override of the same kind does.

    See `rules/lifecycle.md#overrides`.

    A live hub sees to that itself: its objects may come in any order. `namespace` is that of the override,
    empty for one that is for clusters.
    """

    override = models.ForeignKey(Override, models.CASCADE, related_name="targets")
    override_kind = models.CharField(max_length=30)
    namespace = models.CharField(max_length=63, blank=True)
    group = models.CharField(max_length=253, blank=True)
    version = models.CharField(max_length=63)
    kind = models.CharField(max_length=63)
    name = models.CharField(max_length=253)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=[
                    "override_kind",
                    "namespace",
                    "group",
                    "version",
                    "kind",
                    "name",
                    "hub",
                ],
                condition=models.Q(hub=LOCAL_HUB),
                name="override_target_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {full_name(self.namespace, self.name)}"


class OverrideSnapshot(NumberedSnapshot):
    """An immutable, numbered copy of an override, by name: what a cluster runs may outlive the override."""

    kind = models.CharField(max_length=30)
    namespace = models.CharField(max_length=63, blank=True)
    override_name = models.CharField(max_length=_LONGEST_NAME)
    document = ManifestField()
    placement_name = models.CharField(
        max_length=LONGEST_NAMESPACE + 1 + _LONGEST_NAME, blank=True
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "kind", "namespace", "override_name", "number"],
                name="override_snapshot_number_once",
            ),
            models.UniqueConstraint(
                fields=["hub", "kind", "namespace", "override_name"],
                condition=models.Q(is_latest=True),
                name="one_latest_override_snapshot",
            ),
            known("kind", OVERRIDE_KINDS, "override_snapshot_kind_known"),
        ]

    def __str__(self) -> str:
        return full_name(self.namespace, self.name)

    @property
    def name(self) -> str:
        return f"{self.override_name}-{self.number}"
