"""Deletion of snapshots beyond `revisionHistoryLimit` that are not in use (lifecycle A.9)."""

from placements.models import (
    Binding,
    Override,
    OverrideSnapshot,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    StagedRun,
)

OVERRIDE_SNAPSHOTS = 10
"""How many snapshots of an override are kept; the released system has no setting for it (lifecycle B.3.3)."""


def prune_policy_snapshots(placement: Placement) -> int:
    in_use = Binding.objects.filter(placement=placement).values("policy_snapshot")
    kept = _newest(PolicySnapshot, placement)
    surplus = PolicySnapshot.objects.filter(placement=placement, is_latest=False)
    return surplus.exclude(pk__in=kept).exclude(pk__in=in_use).delete()[0]


def prune_resource_snapshots(placement: Placement) -> int:
    """Delete the oldest resource snapshots beyond the limit, never the latest or one that is in use.

    In use is what a binding names, or a staged run that has not ended.
    """
    in_use = Binding.objects.filter(placement=placement, resource_snapshot__isnull=False)
    kept = _newest(ResourceSnapshot, placement)
    surplus = ResourceSnapshot.objects.filter(placement=placement, is_latest=False)
    surplus = surplus.exclude(pk__in=kept).exclude(pk__in=in_use.values("resource_snapshot"))
    carried = StagedRun.objects.filter(placement=placement, ended_at=None, resource_snapshot__isnull=False)
    return surplus.exclude(pk__in=carried.values("resource_snapshot")).delete()[0]


def prune_override_snapshots(override: Override, *, keep: int = OVERRIDE_SNAPSHOTS) -> int:
    """Delete the oldest snapshots of an override, never the latest or one that belongs to a binding."""
    rows = OverrideSnapshot.objects.filter(
        kind=override.kind, namespace=override.namespace, override_name=override.name
    )
    newest = list(rows.order_by("-number").values_list("pk", flat=True)[:keep])
    surplus = rows.filter(is_latest=False).exclude(pk__in=newest)
    found = set(surplus.values_list("pk", flat=True))
    if not found:
        return 0
    used = Binding.objects.exclude(override_snapshots=[]).values_list("override_snapshots", flat=True)
    frozen = StagedRun.objects.filter(ended_at=None).exclude(overrides={})
    by_cluster = frozen.values_list("overrides", flat=True)
    in_runs = {pk for one in by_cluster.iterator() for several in one.values() for pk in several}
    in_use = in_runs | {pk for several in used.iterator() for pk in several}
    return OverrideSnapshot.objects.filter(pk__in=found - in_use).delete()[0]


def _newest(model: type[PolicySnapshot] | type[ResourceSnapshot], placement: Placement) -> list[int]:
    rows = model.objects.filter(placement=placement).order_by("-number")
    return list(rows.values_list("pk", flat=True)[: placement.revision_history_limit])
