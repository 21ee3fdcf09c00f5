"""Projects what changed in the mirror of the hub in scope: repeatable, in batches, kind by kind.

See `rules/live-hub.md#projection`.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from django.db import connection, transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from clusters.hub_queries import across_hubs, live_hub_keys, live_hubs
from clusters.models import Hub, HubStream, MemberCluster, MirroredObject
from clusters.operations.change_log import lock_fleet
from fleetui.bulk import batched
from fleetui.hub_scope import current_hub_id, in_hub
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.bindings import project_bindings, remove_bindings
from placements.hubs.projection.clusters import (
    ClusterRows,
    rejudge_clusters,
)
from placements.hubs.projection.kinds import (
    APPROVAL_KINDS,
    BINDING_KINDS,
    POLICY_KINDS,
    RESOURCE_KINDS,
)
from placements.hubs.projection.observed_rollouts import observe_rollouts
from placements.hubs.projection.overrides import (
    BudgetRows,
    ClusterOverrideRows,
    OverrideRows,
    project_override_snapshots,
    remove_override_snapshots,
)
from placements.hubs.projection.placements import (
    NO_PLACEMENT,
    EvictionRows,
    PlacementRows,
    delete_placements,
    project_policy_snapshots,
    project_resource_snapshots,
    remove_snapshots,
)
from placements.hubs.projection.rows import (
    FAULTS,
    HubDocument,
    HubMoment,
    RowKind,
    save_marks,
)
from placements.hubs.projection.staged_runs import (
    NO_RUN,
    RunRows,
    StrategyRows,
    project_approvals,
    remove_approvals,
)
from placements.hubs.trimming import OVERRIDE_OF
from placements.models import (
    DisruptionBudget,
    Eviction,
    Override,
    OverrideSnapshot,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    Rollout,
    StagedRun,
    StagedStrategy,
)

log = logging.getLogger(__name__)

BATCH = 500


Projection: TypeAlias = Callable[[Sequence[HubDocument], HubMoment], None]


class ProjectedKind(NamedTuple):
    """A kind, how changed objects become rows, and how rows without objects are removed."""

    group: str
    kind: str
    project: Projection
    remove: Callable[[HubMoment], int]


def _kinds(
    kinds: Sequence[str],
    project: Callable[[Sequence[HubDocument], HubMoment], None],
    remove: Callable[[HubMoment], int],
) -> list[ProjectedKind]:
    return [ProjectedKind(PLACEMENT_GROUP, kind, project, remove) for kind in kinds]


def _rows(*tables: type[RowKind[Any]]) -> list[ProjectedKind]:
    return [
        ProjectedKind(rows.group, kind, rows.project, rows.remove)
        for rows in tables
        for kind in rows.mirrored
    ]


KINDS = (
    *_rows(ClusterRows, PlacementRows),
    *_kinds(
        POLICY_KINDS,
        project_policy_snapshots,
        partial(remove_snapshots, PolicySnapshot, POLICY_KINDS),
    ),
    *_kinds(
        RESOURCE_KINDS,
        project_resource_snapshots,
        partial(remove_snapshots, ResourceSnapshot, RESOURCE_KINDS),
    ),
    *_rows(ClusterOverrideRows, OverrideRows),
    *(
        ProjectedKind(
            PLACEMENT_GROUP,
            kind,
            project_override_snapshots,
            partial(remove_override_snapshots, kind),
        )
        for kind in OVERRIDE_OF
    ),
    *_kinds(BINDING_KINDS, project_bindings, remove_bindings),
    *_rows(BudgetRows, EvictionRows, StrategyRows, RunRows),
    *_kinds(APPROVAL_KINDS, project_approvals, remove_approvals),
)
"""In this order: what others refer to comes first."""


def project_changes(*, now: datetime, has_events: bool = True) -> int:
    """Project up to 500 changed objects of the hub in scope, and what was removed; return how many.

    Once nothing has changed any more, the rollouts are observed.
    """
    hub = live_hubs().filter(pk=current_hub_id()).first()
    if hub is None:
        return 0
    moment = HubMoment.of(hub, now=now, has_events=has_events)
    removed = remove_gone(moment)
    dirty = set(
        MirroredObject.objects.filter(is_dirty=True)
        .values_list("group", "kind")
        .distinct()
    )
    for kind in KINDS:
        if (kind.group, kind.kind) in dirty and (count := _project_batch(kind, moment)):
            return removed + count
    return removed or observe_rollouts(moment)


@transaction.atomic
def remove_gone(moment: HubMoment) -> int:
    """Delete the rows whose objects were deleted since the last projection; return how many.

    In a separate transaction, which locks no object: the writer of the mirror locks streams and objects in
    another order.
    """
    marked = HubStream.objects.filter(has_removals=True)
    if not marked.exists():
        return 0
    lock_fleet()
    kinds = set(marked.values_list("group", "kind"))
    marked.update(has_removals=False)
    return sum(
        kind.remove(moment)
        for kind in reversed(KINDS)
        if (kind.group, kind.kind) in kinds
    )


def _project_batch(kind: ProjectedKind, moment: HubMoment) -> int:
    """Project a batch; if it fails, each object alone, so that one delays no other."""
    dirty = MirroredObject.objects.filter(
        group=kind.group, kind=kind.kind, is_dirty=True
    )
    versions = dict(dirty.order_by("pk").values_list("pk", "resource_version")[:BATCH])
    if not versions:
        return 0
    try:
        _project(kind, list(versions), moment)
    except FAULTS:
        for pk, version in versions.items():
            try:
                _project(kind, [pk], moment)
            except FAULTS as error:
                words = f"{type(error).__name__}: {error}"[:300]
                log.warning(
                    "object not projected: kind=%s object=%s error=%s",
                    kind.kind,
                    pk,
                    words,
                )
                MirroredObject.objects.filter(pk=pk, resource_version=version).update(
                    is_dirty=False, projection_error=words, is_unresolved=True
                )
    return len(versions)


@transaction.atomic
def _project(kind: ProjectedKind, pks: Sequence[int], moment: HubMoment) -> None:
    """Write the rows of these objects, and that they are projected.

    The objects are locked before they are read, so that a newer state is written after this commit and makes
    them dirty again. Those that the watcher is writing are left for the next batch: it never waits for us
    while we wait for it.
    """
    lock_fleet()  # one projection of a hub at a time
    can_skip = connection.features.has_select_for_update_skip_locked
    locked = MirroredObject.objects.select_for_update(skip_locked=can_skip)
    rows = locked.filter(pk__in=pks, is_dirty=True).order_by("pk")
    documents = [HubDocument.of(row) for row in rows]
    if not documents:
        return
    kind.project(documents, moment)
    MirroredObject.objects.filter(
        pk__in=[document.row.pk for document in documents]
    ).update(is_dirty=False)
    save_marks(documents)


def rejudge(*, now: datetime) -> int:
    """Judge the clusters of the hub in scope again; return how many changed their eligibility."""
    moment = HubMoment.of(Hub.objects.get(pk=current_hub_id()), now=now)
    with transaction.atomic():
        lock_fleet()
        return rejudge_clusters(moment=moment)


def reproject(*, now: datetime) -> int:
    """Project the whole mirror of the hub in scope again; return how many objects."""
    kinds = [kind.kind for kind in KINDS]
    MirroredObject.objects.filter(kind__in=kinds).update(is_dirty=True)
    HubStream.objects.filter(kind__in=kinds).update(has_removals=True)
    count = 0
    while done := project_changes(now=now, has_events=False):
        count += done
    return count


def hubs_with_changes() -> list[int]:
    """Return the live hubs whose mirror has changes that are not projected."""
    hubs = []
    for pk in live_hub_keys.rows():
        with in_hub(pk):
            kinds = [kind.kind for kind in KINDS]
            dirty = MirroredObject.objects.filter(is_dirty=True, kind__in=kinds)
            removals = HubStream.objects.filter(has_removals=True, kind__in=kinds)
            unobserved = Placement.objects.filter(observe_rollout=True)
            if dirty.exists() or removals.exists() or unobserved.exists():
                hubs.append(pk)
    return hubs


_OTHER_TABLES = (
    StagedRun,
    StagedStrategy,
    Override,
    OverrideSnapshot,
    DisruptionBudget,
    Eviction,
    Rollout,
)


def delete_removed_rows() -> None:
    """Delete what the projection wrote of removed hubs, a limited number of rows of each hub."""
    most = 10 * BATCH
    for pk in Hub.objects.exclude(removed_at=None).values_list("pk", flat=True):
        with in_hub(pk), transaction.atomic():
            placements = list(Placement.objects.values_list("pk", flat=True)[:BATCH])
            delete_placements(placements, now=timezone.now())
            clusters = list(MemberCluster.objects.values_list("pk", flat=True)[:most])
            for part in batched(clusters):
                MemberCluster.objects.filter(pk__in=part).delete()
            for model in _OTHER_TABLES:
                rows = model._default_manager.values_list("pk", flat=True)[:most]
                model._default_manager.filter(pk__in=list(rows)).delete()


PATIENCE = timedelta(hours=1)
"""For which an object may wait for the one that it belongs to: streams arrive in any order."""


def unresolved_objects(*, now: datetime) -> QuerySet[MirroredObject]:
    """Return the unresolved objects of the hub in scope, without their content; unordered."""
    rows = MirroredObject.objects.filter(is_unresolved=True).exclude(_is_early(now))
    return rows.only(
        "group", "kind", "namespace", "name", "not_understood", "projection_error"
    )


def unresolved_counts(hubs: Sequence[int], *, now: datetime) -> dict[int, int]:
    with across_hubs():
        rows = MirroredObject.objects.filter(is_unresolved=True, hub__in=hubs).exclude(
            _is_early(now)
        )
        return dict(rows.order_by().values_list("hub").annotate(count=Count("pk")))


def _is_early(now: datetime) -> Q:
    return Q(projection_error__in=(NO_PLACEMENT, NO_RUN), changed_at__gt=now - PATIENCE)
