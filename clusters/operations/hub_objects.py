"""Storing what an import read of a hub of Open Cluster Management beside the clusters of the file.

An object replaces the one of its name; what an import does not have stays.
"""

from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import User

from clusters.fleet import ManagedObject
from clusters.hub_objects import OcmObject
from clusters.importing import ImportRead
from clusters.managed_cluster import managed_to_plain
from clusters.models import ClusterSetObject, MemberCluster
from clusters.operations.change_log import ChangeLogEntry, log_change
from clusters.operations.join import (
    ClusterSpec,
    JoinOutcome,
    JoinResult,
    dry_run,
    upsert_clusters,
)
from fleetui.audit import AuditEvent, record_all

_COLUMNS = ("kind", "namespace", "name", "selector")


def put_objects(
    found: ImportRead, *, by: User | None, now: datetime, is_preview: bool = False
) -> list[JoinResult]:
    """Store sets and bindings, and the scores of clusters that are not in the file.

    Requires the transaction of an import that has the lock of the fleet, except for a preview.
    """
    scores = dict(found.scores)
    for one in found.members:
        scores.pop(one.name, None)
    specs = []
    for row in MemberCluster.objects.filter(name__in=scores):
        managed = managed_to_plain(ManagedObject({}, scores.pop(row.name)))
        specs.append(ClusterSpec(row.document, managed=managed))
    outcomes = [(row.name, did) for did, row, _ in dry_run(specs, now=now)]
    results = [JoinResult(f"scores of {name}", did, 0) for name, did in outcomes]
    for name in scores:
        detail = "not stored: the cluster is not in the fleet"
        did = JoinOutcome.UNCHANGED
        results.append(JoinResult(f"scores of {name}", did, 0, detail))
    if not is_preview:
        upsert_clusters(specs, by=by, now=now)
    return results + _put_sets(found.sets, by=by, now=now, is_preview=is_preview)


def _put_sets(
    sets: Sequence[OcmObject], *, by: User | None, now: datetime, is_preview: bool
) -> list[JoinResult]:
    there = {row[:3]: row[3] for row in ClusterSetObject.objects.values_list(*_COLUMNS)}
    results = []
    changed = []
    for one in sets:
        did = JoinOutcome.CHANGED
        if one[:3] not in there:
            did = JoinOutcome.JOINED
        elif there[one[:3]] == one.content:
            did = JoinOutcome.UNCHANGED
        result = JoinResult(f"{one.kind} {one.full_name}", did, 0)
        results.append(result)
        if did is not JoinOutcome.UNCHANGED:
            changed.append((one, result))
    if is_preview or not changed:
        return results
    ClusterSetObject.objects.bulk_create(
        [
            ClusterSetObject(**dict(zip(_COLUMNS, one, strict=True)))
            for one, _ in changed
        ],
        update_conflicts=True,
        unique_fields=["hub", *_COLUMNS[:3]],
        update_fields=["selector"],
    )
    log_change(ChangeLogEntry("cluster sets changed", opens=True), changed=())
    events = (AuditEvent(one.result, "cluster set", one.name) for _, one in changed)
    record_all(events, by=by, now=now)
    return results
