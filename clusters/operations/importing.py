"""Importing the clusters of a file with the objects of a hub beside them: all or none.

An object replaces the one of its name; what an import does not have stays.

The page, REST and the command have the same preview and the same operation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction

from clusters.connection_input import parse_connection_document
from clusters.drivers.base import KUBERNETES
from clusters.fleet import ManagedObject
from clusters.hub_objects import OcmObject
from clusters.importing import ImportRead, MemberRead
from clusters.kubeconfig import ParsedConnection
from clusters.managed_cluster import managed_to_plain
from clusters.models import ClusterSetObject, MemberCluster, Membership
from clusters.operations.change_log import ChangeLogEntry, lock_fleet, log_change
from clusters.operations.connection import (
    ConnectionCheckFailed,
    ConnectionExamination,
    ConnectionNotAllowed,
    Kinds,
    check_new_connections,
    new_member,
    refuse_unconfirmed,
    save_checked,
)
from clusters.operations.join import (
    ClusterSpec,
    JoinOutcome,
    JoinResult,
    dry_run,
    upsert_clusters,
)
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.apimachinery.yaml import attach_lines
from fleetui.audit import AuditEvent, record_all
from fleetui.encryption import keep_keys
from fleetui.errors import CONFIRMATION_NEEDED, FleetError
from fleetui.permissions import may_administer_clusters, may_operate

_COLUMNS = ("kind", "namespace", "name", "selector")


def put_objects(
    found: ImportRead, *, by: User | None, now: datetime, is_preview: bool = False
) -> list[JoinResult]:
    """Store sets and bindings, and the scores of clusters that are not in the file.

    Requires the transaction of an import that has the lock of the fleet, except for a preview.
    """
    scores = dict(found.scores)
    for member in found.members:
        scores.pop(member.name, None)
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
            ClusterSetObject(**dict(zip(_COLUMNS, ocm_object, strict=True)))
            for ocm_object, _ in changed
        ],
        update_conflicts=True,
        unique_fields=["hub", *_COLUMNS[:3]],
        update_fields=["selector"],
    )
    log_change(ChangeLogEntry("cluster sets changed", opens=True), changed=())
    events = (
        AuditEvent(join_result.result, "cluster set", join_result.name)
        for _, join_result in changed
    )
    record_all(events, by=by, now=now)
    return results


_ALLOWED = "another name, or a change of its connection on its page"
KindsOf = Callable[[Mapping[str, Any]], Kinds]


class ImportCheckFailed(FleetError):
    """Nothing was imported: connections fail their check, or are those of other clusters than before."""

    problem_type = CONFIRMATION_NEEDED

    def __init__(self, failed: Mapping[str, ConnectionExamination]) -> None:
        self.failed = failed
        lines = [
            f"{name}: {step.message.rstrip('.')}"
            for name, examination in failed.items()
            for step in examination.failed
        ]
        super().__init__("; ".join(lines))


@dataclass(frozen=True, slots=True)
class ImportRow:
    """What an import would do with one cluster; `change` says what of a cluster that is there."""

    read: MemberRead
    did: JoinOutcome
    row: MemberCluster
    change: str = ""
    server: str = ""
    check: ConnectionExamination | None = None

    @property
    def result(self) -> JoinResult:
        parts = [self.change, self.server]
        if self.check:
            parts += (
                f"check failed: {step.message.rstrip('.')}"
                for step in self.check.failed
            )
        detail = ", ".join(filter(None, parts))
        return JoinResult(self.row.name, self.did, self.row.revision, detail)


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What an import did or would do: with clusters, and with the objects of a hub beside them."""

    clusters: list[JoinResult]
    objects: list[JoinResult]
    rows: list[ImportRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A cluster to import, and its connection if it has one; never shown."""

    read: MemberRead
    spec: ClusterSpec
    parsed: ParsedConnection | None = field(default=None, repr=False)


def check_roles(found: ImportRead, by: User | None) -> None:
    """Raise PermissionDenied to a user who may not add these; None is a command, which may."""
    if by is None:
        return
    connected = [member for member in found.members if member.kubeconfig]
    others = len(found.members) - len(connected) + len(found.sets) + len(found.scores)
    if connected and not may_administer_clusters(by):
        raise PermissionDenied("A kubeconfig requires the role cluster-administrator.")
    if others and not may_operate(by):
        raise PermissionDenied(
            "Clusters without a connection require the role operator."
        )


def preview_import(
    found: ImportRead, *, kinds_of: KindsOf, by: User | None, now: datetime
) -> ImportOutcome:
    """Return what an import would do; connections are checked. Raise InvalidManifest, PermissionDenied."""
    planned = _planned(found, by=by, now=now)
    checks = _checks(planned, kinds_of)
    outcomes = dry_run([one.spec for one in planned], now=now)
    rows = [
        ImportRow(
            one.read,
            did,
            row,
            change,
            str(one.spec.connection.get("server", "")),
            checks.get(row.name),
        )
        for one, (did, row, change) in zip(planned, outcomes, strict=True)
    ]
    objects = put_objects(found, by=by, now=now, is_preview=True)
    return ImportOutcome([row.result for row in rows], objects, rows)


def import_members(
    found: ImportRead,
    *,
    driver: str | None = None,
    confirmed: bool = False,
    kinds_of: KindsOf,
    by: User | None,
    now: datetime,
) -> ImportOutcome:
    """Add or change clusters and objects, all or none; the network is used before the transaction.

    `confirmed`: save connections although their check fails; that of another cluster than before is never
    saved here. Raise InvalidManifest, ImportCheckFailed, PermissionDenied.
    """
    planned = _planned(found, driver=driver, by=by, now=now)
    connected = [(one, one.parsed) for one in planned if one.parsed]
    specs = [one.spec for one in planned if not one.parsed]
    if not [*connected, *found.sets, *found.scores]:
        return ImportOutcome(upsert_clusters(specs, by=by, now=now), [])
    checks = _checks(planned, kinds_of)
    for one, _ in connected:
        name = one.read.name
        with _refusals_at(one.read):
            refuse_unconfirmed(checks[name], name, confirmed=True)
    failed = {
        name: examination
        for name, examination in checks.items()
        if not examination.is_passed
    }
    if failed and not confirmed:
        raise ImportCheckFailed(failed)
    keep_keys()
    outcomes = dry_run([one.spec for one, _ in connected], now=now)
    with transaction.atomic():
        lock_fleet()
        results = upsert_clusters(specs, by=by, now=now)
        for (one, parsed), (did, row, _) in zip(connected, outcomes, strict=True):
            check = checks[row.name]
            with _refusals_at(one.read):
                saved = save_checked(one.spec.document, parsed, check, by=by, now=now)
            results.append(JoinResult(row.name, did, saved.owner.revision))
        objects = put_objects(found, by=by, now=now)
    return ImportOutcome(results, objects)


@contextmanager
def _refusals_at(read: MemberRead) -> Iterator[None]:
    """Raise what may not be saved, or only on the page of the cluster, as an error at its place."""
    try:
        yield
    except (ConnectionNotAllowed, ConnectionCheckFailed) as error:
        raise InvalidManifest.of(
            read.path, "conflict", f"{read.name}: {error}", _ALLOWED
        ) from error


def _planned(
    found: ImportRead,
    *,
    driver: str | None = None,
    by: User | None,
    now: datetime,
) -> list[_Planned]:
    """Return the clusters with their connections. Raise PermissionDenied, InvalidManifest with all errors."""
    check_roles(found, by)
    names = [member.name for member in found.members if member.kubeconfig]
    there = {row.name: row for row in MemberCluster.objects.filter(name__in=names)}
    planned = []
    errors: list[FieldError] = []
    for member in found.members:
        if member.kubeconfig is None:
            scores = found.scores.get(member.name, {})
            managed = managed_to_plain(ManagedObject(member.managed, scores))
            spec = ClusterSpec(member.document, driver=driver, managed=managed)
            planned.append(_Planned(member, spec))
            continue
        try:
            parsed = parse_connection_document(
                member.kubeconfig.data, context=member.context, now=now
            )
            document = _connectable(member, there.get(member.name), parsed)
        except InvalidManifest as invalid:
            own = (
                replace(
                    error,
                    path=error.path.removeprefix("kubeconfig").removeprefix("."),
                    message=f"{member.context}: {error.message}",
                )
                for error in invalid.errors
            )
            errors += attach_lines((member.kubeconfig, error) for error in own)
        else:
            spec = ClusterSpec(document, KUBERNETES, parsed.connection)
            planned.append(_Planned(member, spec, parsed))
    raise_errors(errors)
    return planned


def _connectable(
    read: MemberRead, row: MemberCluster | None, parsed: ParsedConnection
) -> Mapping[str, Any]:
    """Return the manifest of the cluster of a context. Raise InvalidManifest if another one has its name."""
    if row is None:
        return new_member(read.name)
    problem = ""
    if row.is_simulated:
        problem = "is simulated"
    elif row.membership == Membership.LEAVING:
        problem = "is leaving the fleet"
    elif row.connection.get("server", "") not in ("", parsed.connection.get("server")):
        problem = "has a connection to another server"
    if problem:
        message = f"cluster {row.name} is in the fleet already and {problem}"
        raise InvalidManifest.of(read.path, "conflict", message, _ALLOWED)
    document: Mapping[str, Any] = row.document
    return document


def _checks(
    planned: Sequence[_Planned], kinds_of: KindsOf
) -> dict[str, ConnectionExamination]:
    connected = {one.read.name: one for one in planned if one.parsed}
    wanted = {name: one.parsed for name, one in connected.items() if one.parsed}
    return check_new_connections(
        wanted, kinds_of=lambda name: kinds_of(connected[name].spec.document)
    )
