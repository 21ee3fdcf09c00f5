"""Joining clusters and replacing their manifests."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.drivers.registry import DRIVERS
from clusters.fleet import (
    ANY_NAME,
    CORDON_KEY,
    CORDON_VALUE,
    RESOURCE_PREFIX,
    SCORE_PREFIX,
)
from clusters.manifest import MemberClusterManifest as Member
from clusters.manifest import newest_heartbeat_of, parse_member
from clusters.models import (
    ClusterLabel,
    ClusterTaint,
    FleetState,
    MemberCluster,
    Membership,
)
from clusters.operations.change_log import ChangeLogEntry, lock_fleet, log_change
from clusters.queries import eligibility
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.apimachinery.metadata import next_generation, without_hub_metadata
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import named_or_counted
from fleetui.audit import AuditEvent, actor_words, record_all
from fleetui.bulk import BATCH_SIZE, batched, update_each
from fleetui.concurrency import check_revision

CLUSTER = "cluster"
RESERVED_NAMES = ("bulk", "import", "new")
"""Names whose addresses belong to a page."""
_USAGE_SORTS = {
    "capacity": "total",
    "allocatable": "allocatable",
    "available": "available",
}


class JoinOutcome(StrEnum):
    JOINED = "joined"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The desired state of a cluster: its manifest, with or without a status, and its connection.

    `driver` None keeps the present driver; a new cluster has none. `managed` is what a hub of Open Cluster
    Management has of it: the scores that it names are replaced.
    """

    document: Mapping[str, Any]
    driver: str | None = None
    connection: Mapping[str, Any] = field(default_factory=dict)
    is_demo: bool = False
    managed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinResult:
    name: str
    result: JoinOutcome
    revision: int
    detail: str = ""


def parse_cluster(document: Mapping[str, Any]) -> Member:
    """Parse the manifest of a cluster to be saved. Raises InvalidManifest, also for a reserved name."""
    member = parse_member(dict(document))
    if member.metadata.name in RESERVED_NAMES:
        raise InvalidManifest.of(
            "metadata.name",
            "reserved-name",
            f"{member.metadata.name} is a reserved name (reserved: {', '.join(RESERVED_NAMES)})",
            "another name",
        )
    return member


def put_cluster(
    wanted: ClusterSpec, *, by: User | None, now: datetime, expected: int | None = None
) -> JoinResult:
    """Add one cluster, or replace its manifest.

    `expected` is the revision that the edit is based on, 0 for a cluster that must be new. Raises
    InvalidManifest, RevisionConflict.
    """
    member = parse_cluster(wanted.document)
    with transaction.atomic():
        lock_fleet()
        current = MemberCluster.objects.filter(name=member.metadata.name).first()
        revision = current.revision if current else 0
        check_revision(
            CLUSTER, member.metadata.name, expected=expected, revision=revision
        )
        return upsert_clusters([wanted], by=by, now=now)[0]


def upsert_clusters(
    wanted: Sequence[ClusterSpec],
    *,
    by: User | None,
    now: datetime,
    as_of: datetime | None = None,
) -> list[JoinResult]:
    """Add clusters or replace their manifests, all or none. Raises InvalidManifest.

    Unchanged clusters are sorted out first, so that thousands of them neither take nor hold the lock.
    Reports are judged as of `as_of`, by default the newest heartbeat among them.
    """
    members = _read(wanted)
    as_of = as_of or min(newest_heartbeat_of(members) or now, now)
    targets = _targets(wanted, members, _state(), now=now, as_of=as_of)
    moved = [
        at
        for at, target in enumerate(targets)
        if target.did is not JoinOutcome.UNCHANGED
    ]
    if moved:
        with transaction.atomic():
            some, theirs = [wanted[at] for at in moved], [members[at] for at in moved]
            again = _targets(some, theirs, lock_fleet(), now=now, as_of=as_of)
            _write(again, by=by, now=now)
        for at, target in zip(moved, again, strict=True):
            targets[at] = target
    return [
        JoinResult(target.row.name, target.did, target.row.revision)
        for target in targets
    ]


def replace_clusters(
    wanted: Sequence[ClusterSpec],
    rows: Mapping[str, MemberCluster],
    *,
    by: User | None,
    now: datetime,
) -> list[JoinResult]:
    """Replace the manifests of these rows, all or none, while the caller has the lock of the fleet.

    Raises InvalidManifest.
    """
    members = _read(wanted)
    as_of = min(newest_heartbeat_of(members) or now, now)
    state = lock_fleet()
    targets = [
        _target(spec, member, rows[member.metadata.name], state, now=now, as_of=as_of)
        for spec, member in zip(wanted, members, strict=True)
    ]
    _write(targets, by=by, now=now)
    return [
        JoinResult(target.row.name, target.did, target.row.revision)
        for target in targets
    ]


def dry_run(
    wanted: Sequence[ClusterSpec], *, now: datetime
) -> list[tuple[JoinOutcome, MemberCluster, str]]:
    """Return what `upsert_clusters` would do with each cluster, its row then, and what of it changes.

    Raises InvalidManifest.
    """
    members = _read(wanted)
    as_of = min(newest_heartbeat_of(members) or now, now)
    targets = _targets(wanted, members, _state(), now=now, as_of=as_of)
    return [(target.did, target.row, _cause(target)) for target in targets]


def _state() -> FleetState:
    return FleetState.objects.first() or FleetState()


def _read(wanted: Sequence[ClusterSpec]) -> list[Member]:
    members = []
    for spec in wanted:
        try:
            members.append(parse_cluster(spec.document))
        except InvalidManifest as invalid:
            if len(wanted) == 1:
                raise
            name = spec.document["metadata"]["name"]
            errors = [
                replace(error, message=f"{name}: {error.message}")
                for error in invalid.errors
            ]
            raise InvalidManifest(errors) from invalid
    check_drivers(wanted)
    counts = Counter(member.metadata.name for member in members)
    errors = [
        FieldError(
            "metadata.name",
            "duplicate",
            f"Duplicate value: {name!r} ({count} times)",
            "",
        )
        for name, count in counts.items()
        if count > 1
    ]
    raise_errors(errors)
    return members


def check_drivers(wanted: Sequence[ClusterSpec]) -> None:
    """Raise InvalidManifest for an unknown driver, or a connection that a driver refuses."""
    odd = sorted({spec.driver for spec in wanted if spec.driver} - set(DRIVERS))
    if odd:
        raise InvalidManifest.of(
            "driver", "not-one-of", f"Unsupported value: {odd[0]!r}", ", ".join(DRIVERS)
        )
    for spec in wanted:
        if spec.driver:
            DRIVERS[spec.driver].check(spec.connection)


def _targets(
    wanted: Sequence[ClusterSpec],
    members: Sequence[Member],
    state: FleetState,
    *,
    now: datetime,
    as_of: datetime,
) -> list["_Target"]:
    names = [member.metadata.name for member in members]
    there: dict[str, MemberCluster] = {}
    for part in batched(names):
        there |= {row.name: row for row in MemberCluster.objects.filter(name__in=part)}
    return [
        _target(
            spec, member, there.get(member.metadata.name), state, now=now, as_of=as_of
        )
        for spec, member in zip(wanted, members, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Target:
    """The desired row, and the row before."""

    row: MemberCluster
    member: Member
    before: MemberCluster | None
    did: JoinOutcome


def _target(
    wanted: ClusterSpec,
    member: Member,
    before: MemberCluster | None,
    state: FleetState,
    *,
    now: datetime,
    as_of: datetime,
) -> _Target:
    written = without_hub_metadata(wanted.document)
    document = {key: value for key, value in written.items() if key != "status"}
    if before:
        row = copy(before)
        row.document = document
    else:
        row = MemberCluster(
            name=member.metadata.name,
            document=document,
            joined_at=now,
            is_demo=wanted.is_demo,
            workloads_problem="",  # until it is saved, a default of the database is no text
        )
    if wanted.managed:
        kept = mapping_at(row.managed)
        scores = {**kept.get("scores", {}), **wanted.managed.get("scores", {})}
        row.managed = {**kept, **wanted.managed, "scores": scores}
    if wanted.driver is not None:
        row.driver, row.connection = wanted.driver, dict(wanted.connection)
        row.observe_at = now if wanted.driver else None
    row.expects_report = (
        row.expects_report
        or bool(row.driver)
        or not _REPORTED.isdisjoint(mapping_at(wanted.document, "status"))
    )
    _take_status(row, member, as_of=as_of)
    _set_membership(row, member, before)
    if before is None:
        set_eligibility(row, now=now, state=None)
        return _Target(row, member, before, JoinOutcome.JOINED)
    set_eligibility(row, now=now, state=state)
    if all(getattr(before, name) == getattr(row, name) for name in _COMPARED):
        return _Target(row, member, before, JoinOutcome.UNCHANGED)
    row.revision = before.revision + 1
    row.spec_generation = next_generation(
        before.spec_generation, before.document, document
    )
    return _Target(row, member, before, JoinOutcome.CHANGED)


# The value of a foreign key by the name of its column: by that of the field it is a query for each cluster.
_WRITTEN = {
    field.name: field.attname
    for field in MemberCluster._meta.concrete_fields
    if field.name not in ("id", "name", "joined_at", "is_demo")
}
_COMPARED = (
    "document",
    "driver",
    "connection",
    "properties",
    "usage",
    "membership",
    "verdict",
    "managed",
)


_REPORTED = frozenset({"agentStatus", "conditions"})
"""Parts of a status that say that an agent reports."""


def _set_membership(
    row: MemberCluster, member: Member, before: MemberCluster | None
) -> None:
    """Set whether the cluster leaves; a new one joins until a driver has observed it."""
    if leaving_since := member.metadata.deletion_timestamp:
        row.membership = Membership.LEAVING
        row.leaving_since = row.leaving_since or leaving_since
        return
    waits = bool(row.driver) and not row.has_reported
    if before is None:
        row.membership = Membership.JOINING if waits else Membership.JOINED


def _take_status(row: MemberCluster, member: Member, *, as_of: datetime) -> None:
    """Set the reported status, unless a driver observes the cluster: its observations are newer."""
    if member.status is None or (row.driver and row.has_reported):
        return
    report, usage = member.report, member.status.resource_usage
    row.properties = dict(member.status.properties)
    row.usage = usage.to_plain() if usage else {}
    if row.as_of and report and row.heartbeat_at == report.heartbeat:
        # The same report again, of this cluster alone, is judged as before.
        as_of = max(row.as_of, as_of)
    row.as_of = as_of
    row.has_reported = report is not None
    if report:
        row.heartbeat_at, row.healthy_since = report.heartbeat, report.healthy_since
        row.agent_joined, row.agent_healthy = report.joined or "", report.healthy or ""


def set_eligibility(
    row: MemberCluster, *, now: datetime, state: FleetState | None
) -> bool:
    """Set the eligibility in the row; return whether it changed."""
    verdict = eligibility(row, now=now, state=state)
    is_first = row.verdict_since is None
    if not is_first and row.verdict == (verdict.kind or ""):
        return False
    row.verdict, row.verdict_reason, row.verdict_since = (
        verdict.kind or "",
        verdict.reason,
        now,
    )
    return True


def _write(targets: Sequence[_Target], *, by: User | None, now: datetime) -> None:
    new = [target for target in targets if target.did is JoinOutcome.JOINED]
    changed = [target for target in targets if target.did is JoinOutcome.CHANGED]
    written = (*new, *changed)
    if not written:
        return
    new_rows = [target.row for target in new]
    MemberCluster.objects.bulk_create(new_rows, batch_size=BATCH_SIZE)
    _update_rows(changed)
    write_index(new_rows, [target.row for target in changed])
    events = (
        AuditEvent(
            target.did,
            CLUSTER,
            target.row.name,
            revision=target.row.revision,
            before=target.before.document if target.before else None,
            after=target.row.document,
        )
        for target in written
    )
    record_all(events, by=by, now=now)
    log_change(
        _change_log_entry(new, changed, by=by),
        changed=[target.row.pk for target in written],
    )


def _update_rows(changed: Sequence[_Target]) -> None:
    """Write the columns that this operation changes, and no others.

    Observations write others meanwhile, without the lock of the fleet. An upsert would send all 30 of each
    cluster.
    """
    by_columns: dict[tuple[str, ...], list[MemberCluster]] = {}
    for target in changed:
        before, row = target.before, target.row
        names = tuple(
            name
            for name, column in _WRITTEN.items()
            if getattr(before, column) != getattr(row, column)
        )
        by_columns.setdefault(names, []).append(row)
    for names, rows in by_columns.items():
        for some in batched(rows):
            columns = {
                row.pk: {name: getattr(row, _WRITTEN[name]) for name in names}
                for row in some
            }
            update_each(MemberCluster.objects.all(), columns)


def write_index(new: Sequence[MemberCluster], changed: Sequence[MemberCluster]) -> None:
    """Write the labels and taints of clusters as rows of their own, those of changed ones again."""
    for part in batched([row.pk for row in changed]):
        for model in (ClusterLabel, ClusterTaint):
            model.objects.filter(cluster_id__in=part).delete()
    rows = (*new, *changed)
    ClusterLabel.objects.bulk_create(
        [
            ClusterLabel(cluster=row, key=key, value=value)
            for row in rows
            for key, value in _labels_in(row.document).items()
        ],
        batch_size=BATCH_SIZE * 4,
    )
    ClusterTaint.objects.bulk_create(
        [
            ClusterTaint(cluster=row, key=key, value=value, effect=effect)
            for row in rows
            for key, value, effect in dict.fromkeys(taints_in(row.document))
        ],
        batch_size=BATCH_SIZE * 4,
    )


def _change_log_entry(
    new: list[_Target], changed: list[_Target], *, by: User | None
) -> ChangeLogEntry:
    """Return what joining and changing these clusters changes for placements."""
    names = [target.row.name for target in (*new, *changed)]
    reason = named_or_counted(names, "cluster")
    causes = {_cause(target) for target in changed}
    cause = " changed"
    if new:
        cause = " joined"
    elif len(causes) == 1:
        cause = f": {causes.pop()}"
    text = f"{reason[:_LONGEST_NAME]}{cause[:_LONGEST_CAUSE]}{actor_words(by)}"
    entry = ChangeLogEntry(text, opens=bool(new), joins=bool(new))
    for target in changed:
        row, before = target.row, target.before
        if before is not None:
            former, document = before.document, row.document
            keys = changed_keys(*map(_labels_in, (former, document)))
            is_gone = row.membership == Membership.LEAVING != before.membership
            entry = replace(
                entry,
                label_keys={*entry.label_keys, *keys},
                property_names={*entry.property_names, *readings(before, row)},
                opens=entry.opens
                or taints_in(former) != taints_in(document)
                or row.verdict != before.verdict,
                gone=(*entry.gone, row.name) if is_gone else entry.gone,
            )
    return entry


_LONGEST_NAME, _LONGEST_CAUSE = 63, 90


def _cause(target: _Target) -> str:
    """Return what of a cluster changed, as the cause of what follows: "cordoned", "Ready → Not ready"."""
    row, before = target.row, target.before
    if before is None or target.did is not JoinOutcome.CHANGED:
        return ""
    labels = [_labels_in(cluster.document) for cluster in (before, row)]
    former, present = taints_in(before.document), taints_in(row.document)
    words = []
    for key in sorted(changed_keys(*labels)):
        old, new = (label.get(key, "(none)") for label in labels)
        words.append(f"label {key} {old} → {new}")
    words += _taint_words(present, former, "cordoned", "added")
    words += _taint_words(former, present, "uncordoned", "removed")
    if row.verdict != before.verdict:
        words.append(READY_WORDS[row.is_eligible])
    if mapping_at(before.managed, "scores") != mapping_at(row.managed, "scores"):
        words.append("scores")
    return ", ".join(words) or "changed"


def _taint_words(
    taints: Collection[tuple[str, str, str]],
    others: Collection[tuple[str, str, str]],
    cordoned: str,
    verb: str,
) -> Iterator[str]:
    for taint in taints:
        if taint not in others and taint[:2] == (CORDON_KEY, CORDON_VALUE):
            yield cordoned
        elif taint not in others:
            yield f"taint {taint[0]} {verb}"


def _labels_in(document: Mapping[str, Any]) -> Mapping[str, str]:
    return mapping_at(document, "metadata", "labels")


def taints_in(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (taint["key"], taint.get("value") or "", taint["effect"])
        for taint in items_at(document, "spec", "taints")
    ]


READY_WORDS = {True: "Not ready → Ready", False: "Ready → Not ready"}


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def readings(before: MemberCluster, row: MemberCluster) -> set[str]:
    names = changed_keys(before.properties, row.properties)
    for sort, word in _USAGE_SORTS.items():
        resources = changed_keys(before.usage.get(sort, {}), row.usage.get(sort, {}))
        names |= {f"{RESOURCE_PREFIX}{word}-{resource}" for resource in resources}
    if row.managed != before.managed:
        rows = (before, row)
        scores = changed_keys(
            *(mapping_at(cluster.managed, "scores") for cluster in rows)
        )
        names |= {f"{SCORE_PREFIX}{name}" for name in scores} | {ANY_NAME}
    return names
