"""Keep as many snapshots as `revisionHistoryLimit` says, and every one that is in use (lifecycle A.9)."""

from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot


def prune_policy_snapshots(placement: Placement) -> int:
    """Delete the oldest policy snapshots beyond the limit, never the latest or one that a binding names."""
    in_use = Binding.objects.filter(placement=placement).values("policy_snapshot")
    kept = _newest(PolicySnapshot, placement)
    surplus = PolicySnapshot.objects.filter(placement=placement, is_latest=False)
    return surplus.exclude(pk__in=kept).exclude(pk__in=in_use).delete()[0]


def prune_resource_snapshots(placement: Placement) -> int:
    """Delete the oldest resource snapshots beyond the limit, never the latest or one that a binding names."""
    in_use = Binding.objects.filter(placement=placement, resource_snapshot__isnull=False)
    kept = _newest(ResourceSnapshot, placement)
    surplus = ResourceSnapshot.objects.filter(placement=placement, is_latest=False)
    doomed = surplus.exclude(pk__in=kept).exclude(pk__in=in_use.values("resource_snapshot"))
    return doomed.delete()[0]


def _newest(model: type[PolicySnapshot] | type[ResourceSnapshot], placement: Placement) -> list[int]:
    rows = model.objects.filter(placement=placement).order_by("-number")
    return list(rows.values_list("pk", flat=True)[: placement.revision_history_limit])
