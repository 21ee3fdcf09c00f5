"""Clusters join, or get a new manifest: one at a time or thousands, by the same operation."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.drivers.registry import DRIVERS
from clusters.models import ClusterLabel, ClusterTaint, FleetState, MemberCluster, Membership
from clusters.operations.fleet_changes import Change, lock_fleet, note
from clusters.verdicts import verdict_of
from fleetui.events import Happening, record_all
from fleetui.revisions import refuse_stale
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.fleet import RESOURCE_PREFIX
from placements.scheduling.member import MemberCluster as Member
from placements.scheduling.member import newest_heartbeat_of, parse_member

CLUSTER = "cluster"
_BATCH = 500
_USAGE_SORTS = {"capacity": "total", "allocatable": "allocatable", "available": "available"}


class Did(StrEnum):
    """What became of one manifest."""

    JOINED = "joined"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cluster as it is to be: its manifest, with or without a status, and how to talk to it.

    `driver` None keeps what the cluster has; a new one then has none.
    """

    document: Mapping[str, Any]
    driver: str | None = None
    connection: Mapping[str, Any] = field(default_factory=dict)
    is_demo: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """What the operation did with one cluster."""

    name: str
    did: Did
    revision: int


def put_cluster(wanted: Wanted, *, by: User | None, now: datetime, expected: int | None = None) -> Put:
    """Let one cluster join, or give it a new manifest.

    `expected` is the revision that the edit started from, 0 for a cluster that must be new. Raises Faults,
    StaleEditError.
    """
    member = parse_member(dict(wanted.document))
    with transaction.atomic():
        lock_fleet()
        current = MemberCluster.objects.filter(name=member.metadata.name).first()
        revision = current.revision if current else 0
        refuse_stale(CLUSTER, member.metadata.name, expected=expected, revision=revision)
        return put_clusters([wanted], by=by, now=now)[0]


def put_clusters(wanted: Sequence[Wanted], *, by: User | None, now: datetime) -> list[Put]:
    """Let clusters join, or give them new manifests, all or none. Raises Faults."""
    members = _read(wanted)
    with transaction.atomic():
        targets = _targets(wanted, members, lock_fleet(), now=now)
        _write(targets, by=by, now=now)
    return [target.put for target in targets]


def foresee_clusters(wanted: Sequence[Wanted], *, now: datetime) -> list[tuple[Did, MemberCluster]]:
    """Give what `put_clusters` would do with each cluster, and its row as it would be. Raises Faults."""
    state = FleetState.objects.filter(id=1).first() or FleetState()
    return [(target.did, target.row) for target in _targets(wanted, _read(wanted), state, now=now)]


def _read(wanted: Sequence[Wanted]) -> list[Member]:
    members = [parse_member(dict(one.document)) for one in wanted]
    _refuse_bad_connections(wanted)
    _refuse_twice(members)
    return members


def _targets(
    wanted: Sequence[Wanted], members: Sequence[Member], state: FleetState, *, now: datetime
) -> list["_Target"]:
    as_of = min(newest_heartbeat_of(members) or now, now)
    there = _rows([member.metadata.name for member in members])
    return [
        _target(one, member, there.get(member.metadata.name), state, now=now, as_of=as_of)
        for one, member in zip(wanted, members, strict=True)
    ]


def _rows(names: Sequence[str]) -> dict[str, MemberCluster]:
    found: dict[str, MemberCluster] = {}
    for start in range(0, len(names), _BATCH):
        rows = MemberCluster.objects.filter(name__in=names[start : start + _BATCH])
        found |= {row.name: row for row in rows}
    return found


@dataclass(frozen=True, slots=True)
class _Target:
    """A row as it is to be, and what of it changed."""

    row: MemberCluster
    member: Member
    before: MemberCluster | None
    did: Did

    @property
    def put(self) -> Put:
        return Put(self.row.name, self.did, self.row.revision)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.member.metadata.labels

    @property
    def taints(self) -> list[tuple[str, str, str]]:
        return [(taint.key, taint.value, taint.effect) for taint in self.member.spec.taints]


def _refuse_bad_connections(wanted: Iterable[Wanted]) -> None:
    odd = sorted({one.driver for one in wanted if one.driver} - set(DRIVERS))
    if odd:
        raise Faults([Fault("driver", "not-one-of", f"{odd[0]!r} is no driver", ", ".join(DRIVERS))])
    for one in wanted:
        if one.driver:
            DRIVERS[one.driver].check(one.connection)


def _refuse_twice(members: Sequence[Member]) -> None:
    counts = Counter(member.metadata.name for member in members)
    faults = [
        Fault("metadata.name", "duplicate", f"{name} stands here {count} times", "each cluster once")
        for name, count in counts.items()
        if count > 1
    ]
    if faults:
        raise Faults(faults)


def _target(
    wanted: Wanted,
    member: Member,
    before: MemberCluster | None,
    state: FleetState,
    *,
    now: datetime,
    as_of: datetime,
) -> _Target:
    document = {key: value for key, value in wanted.document.items() if key != "status"}
    if before:
        row = copy(before)
        row.document = document
    else:
        row = MemberCluster(
            name=member.metadata.name, document=document, joined_at=now, is_demo=wanted.is_demo
        )
    if wanted.driver is not None:
        row.driver, row.connection = wanted.driver, dict(wanted.connection)
        row.observe_at = now if wanted.driver else None
    row.expects_report = row.expects_report or bool(row.driver) or _tells_of_an_agent(wanted.document)
    _take_status(row, member, as_of=as_of)
    _settle_membership(row, member, is_new=before is None)
    settle_verdict(row, now=now, observing_since=None if before is None else state.observing_since)
    did = Did.JOINED if before is None else Did.CHANGED if _differs(before, row) else Did.UNCHANGED
    if did is Did.CHANGED and before is not None:
        row.revision = before.revision + 1
    return _Target(row, member, before, did)


_WRITTEN = [
    field.name
    for field in MemberCluster._meta.concrete_fields
    if field.name not in ("id", "name", "joined_at", "is_demo")
]
_COMPARED = ("document", "driver", "connection", "properties", "usage", "membership", "verdict")


def _differs(before: MemberCluster, row: MemberCluster) -> bool:
    return any(getattr(before, name) != getattr(row, name) for name in _COMPARED)


def _tells_of_an_agent(document: Mapping[str, Any]) -> bool:
    """Tell a hub's own status from one that somebody wrote to give a cluster its properties."""
    return not {"agentStatus", "conditions"}.isdisjoint(document.get("status") or {})


def _take_status(row: MemberCluster, member: Member, *, as_of: datetime) -> None:
    """Take over a reported status, unless a driver watches the cluster and knows better."""
    if member.status is None or (row.driver and row.has_reported):
        return
    report, usage = member.report, member.status.resource_usage
    row.properties = dict(member.status.properties)
    row.usage = usage.to_plain() if usage else {}
    row.has_reported, row.as_of = report is not None, as_of
    if report:
        row.heartbeat_at, row.healthy_since = report.heartbeat, report.healthy_since
        row.agent_joined, row.agent_healthy = report.joined or "", report.healthy or ""


def _settle_membership(row: MemberCluster, member: Member, *, is_new: bool) -> None:
    leaving_since = member.metadata.deletion_timestamp
    if leaving_since:
        row.membership, row.leaving_since = Membership.LEAVING, row.leaving_since or leaving_since
    elif is_new:
        waits = bool(row.driver) and not row.has_reported
        row.membership = Membership.JOINING if waits else Membership.JOINED


def settle_verdict(row: MemberCluster, *, now: datetime, observing_since: datetime | None) -> bool:
    """Judge the cluster and note the verdict in the row; tell whether it is another one."""
    verdict = verdict_of(row, now=now, observing_since=observing_since)
    is_first = row.verdict_since is None
    if not is_first and row.verdict == (verdict.kind or ""):
        return False
    row.verdict, row.verdict_reason, row.verdict_since = verdict.kind or "", verdict.reason, now
    return True


def _write(targets: Sequence[_Target], *, by: User | None, now: datetime) -> None:
    new = [target for target in targets if target.did is Did.JOINED]
    changed = [target for target in targets if target.did is Did.CHANGED]
    if not new and not changed:
        return
    MemberCluster.objects.bulk_create([target.row for target in new], batch_size=_BATCH)
    # An upsert, and never an insert under the fleet's lock: bulk_update takes a minute for 5,000 clusters.
    MemberCluster.objects.bulk_create(
        [target.row for target in changed],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=_WRITTEN,
        batch_size=_BATCH,
    )
    _write_index(new, changed)
    record_all(map(_happening, chain(new, changed)), by=by, now=now)
    note(_change(new, changed))


def _write_index(new: Sequence[_Target], changed: Sequence[_Target]) -> None:
    """Write the rows of labels and taints anew where they may differ."""
    ids = [target.row.pk for target in changed]
    for model in (ClusterLabel, ClusterTaint):
        for start in range(0, len(ids), _BATCH):
            model.objects.filter(cluster_id__in=ids[start : start + _BATCH]).delete()
    written = (*new, *changed)
    ClusterLabel.objects.bulk_create(
        [
            ClusterLabel(cluster=target.row, key=key, value=value)
            for target in written
            for key, value in target.labels.items()
        ],
        batch_size=_BATCH * 4,
    )
    ClusterTaint.objects.bulk_create(
        [
            ClusterTaint(cluster=target.row, key=key, value=value, effect=effect)
            for target in written
            for key, value, effect in target.taints
        ],
        batch_size=_BATCH * 4,
    )


def _happening(target: _Target) -> Happening:
    before = target.before
    return Happening(
        target.did,
        CLUSTER,
        target.row.name,
        revision=target.row.revision,
        before=None if before is None else before.document,
        after=target.row.document,
    )


def _change(new: Sequence[_Target], changed: Sequence[_Target]) -> Change:
    """Gather what placements may care about."""
    names = [target.row.name for target in chain(new, changed)]
    reason = names[0] if len(names) == 1 else f"{len(names):,} clusters"
    verb = "joined" if new else "changed"
    found = Change(f"{reason} {verb}", opens=bool(new))
    for target in changed:
        before = target.before
        if before is not None:
            found = _with_difference(found, before, target)
    return found


def _with_difference(change: Change, before: MemberCluster, target: _Target) -> Change:
    row = target.row
    labels = _labels_in(before.document)
    is_other_taint = _taints_in(before.document) != target.taints
    is_gone = row.membership == Membership.LEAVING != before.membership
    return replace(
        change,
        label_keys={*change.label_keys, *changed_keys(labels, target.labels)},
        property_names={*change.property_names, *readings(before, row)},
        opens=change.opens or is_other_taint or row.verdict != before.verdict,
        gone=(*change.gone, row.name) if is_gone else change.gone,
    )


def _labels_in(document: Mapping[str, Any]) -> Mapping[str, str]:
    return parse_member(dict(document)).metadata.labels


def _taints_in(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [(one.key, one.value, one.effect) for one in parse_member(dict(document)).spec.taints]


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Give the keys whose values differ."""
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def readings(before: MemberCluster, row: MemberCluster) -> set[str]:
    """Give the properties that changed, reported resources by the names that policies use for them."""
    names = changed_keys(before.properties, row.properties)
    for sort, word in _USAGE_SORTS.items():
        resources = changed_keys(before.usage.get(sort, {}), row.usage.get(sort, {}))
        names |= {f"{RESOURCE_PREFIX}{word}-{resource}" for resource in resources}
    return names
