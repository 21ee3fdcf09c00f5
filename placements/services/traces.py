"""Histories that name placements and clusters: those of a demo are deleted with it."""

from collections.abc import Collection
from datetime import datetime

from placements.models import (
    ClusterUpdate,
    Decision,
    Drain,
    DrainStep,
    Eviction,
    Leftover,
    ResilienceReport,
    Rollout,
    StagedRun,
    StalePick,
    WaitingRemoval,
)


def forget_placements(names: Collection[str]) -> None:
    """Delete the histories of placements whose rows are deleted; the audit log stays."""
    for model in (
        Rollout,
        StagedRun,
        Eviction,
        DrainStep,
        Leftover,
        WaitingRemoval,
    ):
        model._default_manager.filter(placement_name__in=names).delete()
    Decision.objects.filter(placement_name__in=names, placement=None).delete()


def forget_clusters(names: Collection[str], *, since: datetime) -> None:
    """Delete the histories of clusters that left, and what was computed with them since they joined."""
    for model in (ClusterUpdate, Eviction, Drain, StalePick, Leftover, WaitingRemoval):
        model._default_manager.filter(cluster_name__in=names).delete()
    ResilienceReport.objects.filter(created_at__gte=since).delete()
