"""What clusters are to have: the manifests of a resource snapshot, as the overrides of each make them."""

from dataclasses import dataclass, field

from clusters.models import MemberCluster
from clusters.queries import cluster_of
from placements.models import Binding, OverrideSnapshot, ResourceSnapshotPart
from placements.overriding import Manifests, frozen_of, overridden
from placements.rollout.overrides import OverrideFailed
from placements.rollout.overrides import OverrideSnapshot as Frozen


@dataclass
class Contents:
    """The contents for one round of calls; snapshots and sets of overrides are read once for all clusters."""

    _manifests: dict[int | None, Manifests] = field(default_factory=dict)
    _overrides: dict[tuple[int, ...], tuple[Frozen, ...] | OverrideFailed] = field(default_factory=dict)

    def of(self, binding: Binding, cluster: MemberCluster) -> Manifests | OverrideFailed:
        """Give what one cluster is to have, or why that cannot be made."""
        manifests = self._manifests_of(binding.resource_snapshot_id)
        snapshots = self._overrides_of(tuple(binding.override_snapshots))
        if isinstance(snapshots, OverrideFailed):
            return snapshots
        return overridden(manifests, snapshots, cluster_of(cluster)) if snapshots else manifests

    def _manifests_of(self, snapshot: int | None) -> Manifests:
        if snapshot not in self._manifests:
            parts = ResourceSnapshotPart.objects.filter(snapshot=snapshot).order_by("position")
            self._manifests[snapshot] = tuple(
                manifest for part in parts.values_list("manifests", flat=True) for manifest in part
            )
        return self._manifests[snapshot]

    def _overrides_of(self, keys: tuple[int, ...]) -> tuple[Frozen, ...] | OverrideFailed:
        """Give overrides in the order in which they are applied."""
        if keys not in self._overrides:
            rows = OverrideSnapshot.objects.in_bulk(list(keys)) if keys else {}
            if len(rows) < len(keys):
                return _GONE
            self._overrides[keys] = tuple(frozen_of(rows[key]) for key in keys)
        return self._overrides[keys]


_GONE = OverrideFailed("a snapshot", "spec", "any resource", "the snapshot is gone; a newer version follows")
"""The override was changed or deleted in the moment in which the cluster was started."""
