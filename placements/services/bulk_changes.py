"""Changes of many clusters at once: a preview with the impact on placements, then batches with a result each.

Page, REST and command call `preview_change` and `start_change`; a worker continues a change of more than
200 clusters. The state of a change is in the database, so any worker can continue it, also after a crash.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from time import monotonic
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction

from clusters.filters import ClusterFilter, clusters_matching
from clusters.fleet import Cluster, Fleet, Taint
from clusters.health import leaving
from clusters.manifest import parse_member
from clusters.models import MemberCluster
from clusters.operations.edit import (
    CORDON,
    UnknownClusterError,
    change_labels,
    change_taints,
    cordon,
    uncordon,
)
from clusters.operations.join import JoinOutcome, JoinResult
from clusters.operations.leave import leave
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.audit import actor_name
from fleetui.permissions import FLEET, check_change
from fleetui.request_ids import with_request_id
from fleetui.task_queue import enqueue
from placements.models import BulkChange, Drain
from placements.services.disruption.drains import drain
from placements.services.fleet.impact import Impact, impact_of
from placements.services.rollouts.operations import ActionNotAllowed

APPLY_BULK_CHANGES = "placements.tasks.apply_bulk_changes"
MOST_AT_ONCE = 200
"""A change of more clusters runs in a worker; also the size of a batch."""
IN_REQUEST = 0.2
"""Seconds after which a request leaves the rest to a worker."""
LEASE = timedelta(seconds=60)
KEPT = 100
"""Number of changes to keep."""


class BulkAction(StrEnum):
    """What is done with each of many clusters."""

    LABELS = "labels"
    TAINTS = "taints"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    LEAVE = "leave"


class BulkOutcome(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result for one cluster, with the reason of a failure."""

    name: str
    outcome: BulkOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """What an action would change on one cluster; `conflict` is a reason to check it first."""

    name: str
    change: str
    conflict: str = ""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The clusters as they would be changed, and the impact on placements."""

    rows: tuple[PreviewRow, ...]
    impact: Impact

    @property
    def changing(self) -> int:
        return sum(bool(row.change) for row in self.rows)

    @property
    def conflicts(self) -> int:
        return sum(bool(row.conflict) for row in self.rows)


def read_options(action: BulkAction, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an action: `labels` to set, None removes; taints to `add` and to `remove`.

    Raise InvalidManifest for those that a manifest could not have, and for none where some are required.
    """
    allowed = {BulkAction.LABELS: {"labels"}, BulkAction.TAINTS: {"add", "remove"}}.get(action, set())
    options = {key: value for key, value in values.items() if value}
    if unknown := sorted(options.keys() - allowed):
        words = ", ".join(sorted(allowed)) or "no options"
        raise InvalidManifest.of(unknown[0], "unknown-field", f"Unknown field {unknown[0]!r}", words)
    if allowed and not options:
        path = "labels" if action is BulkAction.LABELS else "add"
        raise InvalidManifest.of(path, "required", "Required value", "at least one change")
    labels = options.get("labels", {})
    if not isinstance(labels, dict):
        raise InvalidManifest.of("labels", "wrong-type", "Invalid value: not an object", "labels by key")
    metadata = {"name": "any", "labels": {key: "" if one is None else one for key, one in labels.items()}}
    for field in ("add", "remove"):
        spec = {"identity": {"kind": "User", "name": "any"}, "taints": options.get(field) or []}
        document = {"apiVersion": MEMBER_VERSIONS[0], "kind": MEMBER_KIND, "metadata": metadata, "spec": spec}
        try:
            parse_member(document)
        except InvalidManifest as invalid:
            paths = {"metadata.labels": "labels", "spec.taints": field}
            placed = [
                replace(error, path=here + error.path.removeprefix(there))
                for error in invalid.errors
                for there, here in paths.items()
                if error.path.startswith(there)
            ]
            raise InvalidManifest(placed or invalid.errors) from invalid
    return options


def selected_clusters(names: Sequence[str], cluster_filter: ClusterFilter | None = None) -> list[str]:
    """Return the names of the selected clusters in order: these, and all that match a filter.

    Raise InvalidManifest for a name that is not in the fleet, and without a cluster.
    """
    matching = clusters_matching(cluster_filter).values_list("name", flat=True) if cluster_filter else ()
    known = set(MemberCluster.objects.values_list("name", flat=True)) if names else set()
    errors = [
        FieldError(f"names[{at}]", "bad-reference", f"Not found: {name[:63]!r}", "a member cluster")
        for at, name in enumerate(names)
        if name not in known
    ]
    clusters = sorted({*names, *matching})
    if not clusters:
        errors.append(FieldError("names", "required", "Required value", "at least one cluster"))
    if errors:
        raise InvalidManifest(errors[:20])
    return clusters


def preview_change(action: BulkAction, options: Mapping[str, Any], names: Sequence[str]) -> BulkPreview:
    """Return what an action would change, and the placements that would be scheduled differently."""
    fleet, chosen = current_fleet().fleet, set(names)
    draining = set[str]()
    if action in (BulkAction.DRAIN, BulkAction.UNCORDON):
        running = Drain.objects.filter(state=Drain.State.RUNNING)
        draining = set(running.values_list("cluster_name", flat=True))
    rows, after = [], []
    for cluster in fleet:
        if cluster.name not in chosen:
            after.append(cluster)
            continue
        new, change, conflict = _apply_action(cluster, action, options)
        if cluster.name in draining:
            conflict = "Drain in progress"
            change = "" if action is BulkAction.DRAIN else change
        rows.append(PreviewRow(cluster.name, change, conflict))
        after.append(new)
    gone = [row.name for row in rows if row.change] if action is BulkAction.LEAVE else ()
    return BulkPreview(tuple(rows), impact_of(Fleet(after), gone=gone))


def _apply_action(
    cluster: Cluster, action: BulkAction, options: Mapping[str, Any]
) -> tuple[Cluster, str, str]:
    """Return a cluster as an action would leave it, the change in words, and what conflicts with it."""
    if action is BulkAction.LEAVE:
        is_leaving = cluster.eligibility == leaving()
        return cluster._replace(eligibility=leaving()), "" if is_leaving else "Leaves the fleet", ""
    if action is BulkAction.LABELS:
        labels, words, conflicts = dict(cluster.labels), [], []
        for key, value in options["labels"].items():
            before = labels.get(key)
            if value is None and before is not None:
                del labels[key]
                words.append(f"− {key}={before}")
            elif value is not None and before != value:
                labels[key] = value
                words.append(f"+ {key}={value}" if before is None else f"{key}: {before} → {value}")
                conflicts += [f"Replaces {key}={before}"] if before is not None else []
        return cluster._replace(labels=labels), ", ".join(words), ", ".join(conflicts)
    add, remove = options.get("add", ()), options.get("remove", ())
    if action is not BulkAction.TAINTS:
        add, remove = ((), (CORDON,)) if action is BulkAction.UNCORDON else ((CORDON,), ())
    added, removed = (
        [Taint(one["key"], one.get("value") or "", one["effect"]) for one in several]
        for several in (add, remove)
    )
    taints = tuple(one for one in cluster.taints if one not in removed)
    taints += tuple(one for one in dict.fromkeys(added) if one not in taints)
    words = [f"+ {_taint_words(one)}" for one in taints if one not in cluster.taints]
    words += [f"− {_taint_words(one)}" for one in cluster.taints if one not in taints]
    if action is BulkAction.DRAIN:
        return cluster._replace(taints=taints), "Cordon and evict", ""
    return cluster._replace(taints=taints), ", ".join(words), ""


def _taint_words(taint: Taint) -> str:
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def start_change(
    action: BulkAction, options: Mapping[str, Any], names: Sequence[str], *, by: User | None, now: datetime
) -> BulkChange:
    """Apply an action to clusters; a worker continues what takes longer than a request may.

    Raise NotOfTeamError unless the user may change each cluster.
    """
    check_change(by, *(FLEET for _ in names), what="these clusters")
    row = BulkChange.objects.create(
        request_id=uuid4().hex,
        action=action,
        options=dict(options),
        names=list(names),
        created_at=now,
        actor=by,
        created_by=actor_name(by),
        run_at=now + LEASE if len(names) <= MOST_AT_ONCE else now,
    )
    BulkChange.objects.filter(pk__lte=row.pk - KEPT).delete()
    if len(names) <= MOST_AT_ONCE:
        apply_batch(row, now=now, seconds=IN_REQUEST)
    if row.run_at is not None:
        enqueue(APPLY_BULK_CHANGES)
    return row


def is_due(*, now: datetime) -> bool:
    return BulkChange.objects.filter(run_at__lte=now).exists()


def apply_due(*, now: datetime) -> int:
    """Apply a batch of the oldest change that is due and that no worker has claimed; return 0 or 1."""
    row = BulkChange.objects.filter(run_at__lte=now).order_by("run_at", "pk").first()
    if row is None or not BulkChange.objects.filter(pk=row.pk, run_at=row.run_at).update(run_at=now + LEASE):
        return 0
    apply_batch(row, now=now)
    return 1


def apply_batch(row: BulkChange, *, now: datetime, seconds: float = 2.0) -> None:
    """Apply a change to its next clusters, and record the results; a batch that fails is repeated singly."""
    names = row.names[len(row.results) : len(row.results) + MOST_AT_ONCE]
    started, results = monotonic(), list[BulkResult]()
    with with_request_id(row.request_id):
        one_by_one = row.action == BulkAction.DRAIN
        try:
            results = [] if one_by_one else _apply(row, names, now=now)
        except (InvalidManifest, UnknownClusterError):
            one_by_one = True
        for name in names if one_by_one else ():
            if results and monotonic() - started > seconds:
                break
            try:
                results += _apply(row, [name], now=now)
            except (InvalidManifest, UnknownClusterError, ActionNotAllowed) as error:
                results.append(BulkResult(name, BulkOutcome.FAILED, str(error)))
    row.results = [*row.results, *([one.name, one.outcome, one.message] for one in results)]
    is_done = len(row.results) >= len(row.names)
    row.run_at, row.ended_at = (None, datetime.now(UTC)) if is_done else (now, None)
    row.save(update_fields=["results", "run_at", "ended_at"])


@transaction.atomic
def _apply(row: BulkChange, names: Sequence[str], *, now: datetime) -> list[BulkResult]:
    """Apply a change to clusters, all or none. Raise what the operations raise."""
    how: Any = {"by": row.actor, "now": now}
    if row.action == BulkAction.LEAVE:
        left = {one.name for one in leave(names, **how)}
        return [_bulk_result(name, name in left) for name in names]
    if row.action == BulkAction.DRAIN:
        return [_bulk_result(name, drain(name, **how).started_at == now) for name in names]
    operations: dict[BulkAction, Callable[..., list[JoinResult]]] = {
        BulkAction.LABELS: change_labels,
        BulkAction.TAINTS: change_taints,
        BulkAction.CORDON: cordon,
        BulkAction.UNCORDON: uncordon,
    }
    operation = operations[BulkAction(row.action)]
    options = dict(row.options)
    if row.action == BulkAction.LABELS:
        labels = options["labels"]
        new_labels = {key: value for key, value in labels.items() if value is not None}
        options = {"put": new_labels, "remove": sorted(labels.keys() - new_labels.keys())}
    results = operation(names, **options, **how)
    return [_bulk_result(one.name, one.result is JoinOutcome.CHANGED) for one in results]


def _bulk_result(name: str, is_changed: bool) -> BulkResult:
    return BulkResult(name, BulkOutcome.DONE if is_changed else BulkOutcome.UNCHANGED)


def results_of(row: BulkChange) -> list[BulkResult]:
    return [BulkResult(name, BulkOutcome(outcome), message) for name, outcome, message in row.results]
