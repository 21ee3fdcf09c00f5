"""Changes of clusters: labels, taints, cordon, faults, leaving (`rules/lifecycle.md#member-clusters`)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NotRequired, TypedDict, Unpack

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from clusters.credentials import credential_of
from clusters.driver_factory import driver_for
from clusters.drivers.concurrency import call_all
from clusters.drivers.registry import DRIVERS
from clusters.drivers.simulated.state import (
    DriverCall,
    FaultKind,
    SimulatedFault,
    parse_configuration,
)
from clusters.fleet import CORDON_KEY, CORDON_VALUE
from clusters.health import LIMITS, leaving
from clusters.kubernetes_drivers import hub_id
from clusters.models import FleetState, MemberCluster, Membership
from clusters.observation import unhealthy_since
from clusters.operations.change_log import ChangeLogEntry, lock_fleet, log_change
from clusters.operations.credentials import remove_secret
from clusters.operations.identity import remember_former
from clusters.operations.join import (
    CLUSTER,
    ClusterSpec,
    JoinResult,
    changed_keys,
    replace_clusters,
)
from fleetui.apimachinery.words import named_or_counted
from fleetui.audit import AuditEvent, actor_words, record, record_all
from fleetui.bulk import batched, first_or_raise, save_fields
from fleetui.concurrency import check_revision
from fleetui.errors import FleetError, UnknownObject
from fleetui.threads import close_connections

Document = dict[str, Any]
Labels = dict[str, str]
Taints = list[dict[str, str]]
CORDON = {"key": CORDON_KEY, "value": CORDON_VALUE, "effect": "NoSchedule"}


class UnknownClusterError(UnknownObject):
    """No cluster of the fleet has this name."""

    problem_type = "unknown-cluster"

    def __init__(self, name: str) -> None:
        super().__init__(f"cluster {name!r} not found")
        self.name = name


class EditOptions(TypedDict):
    """Who edits and when; `expected` is the revision that the edit is based on."""

    by: User | None
    now: datetime
    expected: NotRequired[int | None]


def clusters_named(names: Collection[str]) -> list[MemberCluster]:
    """Return the clusters of these names, in their order. Raise UnknownClusterError."""
    rows = {
        row.name: row
        for part in batched(names)
        for row in MemberCluster.objects.filter(name__in=part)
    }
    for name in names:
        if name not in rows:
            raise UnknownClusterError(name)
    return [rows[name] for name in names]


def change_labels(
    names: Collection[str],
    *,
    put: Mapping[str, str],
    remove: Collection[str] = (),
    replaces: bool = False,
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Set and remove labels; with `replaces` those in `put` are all that is left.

    Raises InvalidManifest, UnknownClusterError, RevisionConflict.
    """

    def edit(document: Document) -> None:
        before = document["metadata"].get("labels") or {}
        after = dict(put)
        if not replaces:
            after = {**before, **put}
        after = {key: value for key, value in after.items() if key not in remove}
        if after != before:
            document["metadata"]["labels"] = after

    return _edit(names, edit, **options)


def change_taints(
    names: Collection[str],
    *,
    add: Sequence[Mapping[str, str]] = (),
    remove: Sequence[Mapping[str, str]] = (),
    replaces: bool = False,
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Add taints where missing, and remove others where present; with `replaces` those in `add` are all.

    Raises as `change_labels`.
    """

    def edit(document: Document) -> None:
        before = document["spec"].get("taints") or []
        kept = [] if replaces else before
        after = [
            one for one in kept if not any(_is_same(one, other) for other in remove)
        ]
        after += [
            dict(one) for one in add if not any(_is_same(one, other) for other in after)
        ]
        if after != before:
            document["spec"]["taints"] = after

    return _edit(names, edit, **options)


def replace_labels_and_taints(
    names: Collection[str],
    *,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
    **options: Unpack[EditOptions],
) -> list[JoinResult]:
    """Replace labels and taints as one change. Raises as `change_labels`."""

    def edit(document: Document) -> None:
        document["metadata"]["labels"], document["spec"]["taints"] = (
            dict(labels),
            list(taints),
        )

    return _edit(names, edit, **options)


def undo_edits(
    edits: Mapping[str, tuple[Document, Document]], *, by: User | None, now: datetime
) -> list[str]:
    """Restore labels and taints, from what edits of clusters found and what they wrote.

    Return the clusters whose labels or taints have been changed since: they stay as they are.
    """
    changed_since = []

    def restore(document: Document) -> None:
        before, after = edits[document["metadata"]["name"]]
        labels = _labels_before(
            *(one["metadata"].get("labels") or {} for one in (document, before, after))
        )
        taints = _taints_before(
            *(one["spec"].get("taints") or [] for one in (document, before, after))
        )
        if labels is None or taints is None:
            changed_since.append(document["metadata"]["name"])
            return
        for part, key, value in (
            ("metadata", "labels", labels),
            ("spec", "taints", taints),
        ):
            document[part].pop(key, None)
            if value or key in before[part]:
                document[part][key] = value

    _edit(edits, restore, by=by, now=now)
    return changed_since


def _labels_before(labels: Labels, old: Labels, new: Labels) -> Labels | None:
    """Return labels as before a change from `old` to `new`; None where they are not as it wrote them."""
    if labels == new:
        return old
    keys = changed_keys(old, new)
    if any(labels.get(key) != new.get(key) for key in keys):
        return None
    others = {key: value for key, value in labels.items() if key not in keys}
    return {**others, **{key: old[key] for key in keys if key in old}}


def _taints_before(taints: Taints, old: Taints, new: Taints) -> Taints | None:
    """Return taints as before a change from `old` to `new`; None where they are not as it wrote them."""
    added = [taint for taint in new if taint not in old]
    removed = [taint for taint in old if taint not in new]
    if any(taint not in taints for taint in added) or any(
        taint in taints for taint in removed
    ):
        return None
    kept = [taint for taint in old if taint in [*taints, *removed]]
    return kept + [taint for taint in taints if taint not in [*old, *added]]


def cordon(names: Collection[str], **options: Unpack[EditOptions]) -> list[JoinResult]:
    """Add the taint of the drain tool, which repels placements (`rules/lifecycle.md#evictions`)."""
    return change_taints(names, add=[CORDON], **options)


def uncordon(
    names: Collection[str], **options: Unpack[EditOptions]
) -> list[JoinResult]:
    return change_taints(names, remove=[CORDON], **options)


def _is_same(taint: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(
        (taint.get(key) or "") == (other.get(key) or "")
        for key in ("key", "value", "effect")
    )


def _edit(
    names: Collection[str],
    edit: Callable[[Document], None],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> list[JoinResult]:
    with transaction.atomic():
        lock_fleet()
        rows = clusters_named(names)
        wanted = []
        for row in rows:
            check_revision(CLUSTER, row.name, expected=expected, revision=row.revision)
            # Edits replace what they change in `metadata` and `spec`, so nothing deeper is copied.
            document = {
                **row.document,
                "metadata": dict(row.document["metadata"]),
                "spec": dict(row.document["spec"]),
            }
            edit(document)
            wanted.append(ClusterSpec(document))
        return replace_clusters(wanted, {row.name: row for row in rows}, by=by, now=now)


_SINCE_NOW = frozenset({FaultKind.LOST_STATE, FaultKind.FLAP})


class NotSimulatedError(FleetError):
    problem_type = "not-simulated"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not a simulated cluster; faults can be injected into simulated clusters only"
        )


@transaction.atomic
def set_faults(
    name: str,
    faults: Sequence[Mapping[str, Any]],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> MemberCluster:
    """Replace the faults of a simulated cluster, and observe it next; equal faults change nothing.

    Raises UnknownClusterError, NotSimulatedError, RevisionConflict, InvalidManifest.
    """
    lock_fleet()  # as every operation that counts revisions of clusters
    row = first_or_raise(
        MemberCluster.objects.filter(name=name), UnknownClusterError(name)
    )
    check_revision(CLUSTER, name, expected=expected, revision=row.revision)
    before = faults_of(row)
    wanted = [dict(fault) for fault in faults]
    rest = {
        key: value
        for key, value in row.connection.items()
        if key not in ("fault", "faults")
    }
    connection = {**rest, "faults": wanted} if wanted else rest
    parse_configuration(connection, path="")
    if wanted == before:
        return row
    save_fields(row, connection=connection, revision=row.revision + 1, observe_at=now)
    verb = "fault injected" if wanted else "faults cleared"
    event = AuditEvent(
        verb,
        CLUSTER,
        name,
        revision=row.revision,
        before={"faults": before},
        after={"faults": wanted},
    )
    record(event, by=by, now=now)
    return row


def not_ready_at(cluster: MemberCluster, *, now: datetime) -> datetime | None:
    """Return when a cluster that is ready becomes not ready, if it stays as it is; None if it does not.

    A fault counts from the moment of its injection until it is cleared, before an observation has shown it.
    """
    if (
        not cluster.is_eligible
        or not cluster.expects_report
        or not cluster.is_monitored
    ):
        return None  # an imported report is judged as of its import
    faults = (
        parse_configuration(cluster.connection).faults_at(now)
        if cluster.is_simulated
        else []
    )
    is_silent = not cluster.is_simulated and cluster.unanswered_since is not None
    is_silent = is_silent or any(keeps_from_reporting(fault) for fault in faults)
    will_be_unhealthy = any(fault.kind is FaultKind.UNHEALTHY for fault in faults)
    is_unhealthy = unhealthy_since(cluster, now=now) is not None
    if not (is_silent or is_unhealthy or will_be_unhealthy):
        return None

    since = FleetState.objects.values_list("observing_since", flat=True).first() or now
    moments = []
    if is_silent:
        moments.append(max(cluster.heartbeat_at or now, since) + LIMITS.heartbeat)
    if is_unhealthy:
        moments.append(max(cluster.healthy_since or now, since) + LIMITS.unhealthy)
    elif will_be_unhealthy:
        moments.append(now + LIMITS.unhealthy)
    return min(moments)


def keeps_from_reporting(fault: SimulatedFault) -> bool:
    if fault.kind is FaultKind.TIME_OUT:
        return not fault.calls or DriverCall.OBSERVE in fault.calls
    return fault.kind in (FaultKind.UNREACHABLE, FaultKind.SILENT)


def faults_of(cluster: MemberCluster) -> list[dict[str, Any]]:
    """Return the faults of a simulated cluster with the short form written out. Raise NotSimulatedError."""
    if not cluster.is_simulated:
        raise NotSimulatedError(cluster.name)
    short = cluster.connection.get("fault")
    faults = [dict(fault) for fault in cluster.connection.get("faults") or ()]
    return [*faults, {"kind": short}] if short else faults


def new_fault(
    kind: str,
    *,
    now: datetime,
    lasts: timedelta | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a fault that starts now and ends after `lasts`; None means until cleared."""
    since = {"since": now.isoformat()} if kind in _SINCE_NOW else {}
    until = {"until": (now + lasts).isoformat()} if lasts else {}
    return {"kind": kind, **(about or {}), **since, **until}


LONGEST_LEAVE = timedelta(minutes=15)
_THREADS = 32
_SECONDS = 15.0
_SECONDS_EACH = 5.0


@transaction.atomic
def leave(
    names: Collection[str],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> list[MemberCluster]:
    """Start the removal of clusters from the fleet; return those that were not leaving already.

    Raises UnknownClusterError, RevisionConflict.
    """
    lock_fleet()
    rows = {row.name: row for row in MemberCluster.objects.filter(name__in=names)}
    for name in names:
        if name not in rows:
            raise UnknownClusterError(name)
        check_revision(CLUSTER, name, expected=expected, revision=rows[name].revision)
    going = [row for row in rows.values() if row.membership != Membership.LEAVING]
    verdict = leaving()
    MemberCluster.objects.filter(pk__in=[row.pk for row in going]).update(
        membership=Membership.LEAVING,
        leaving_since=now,
        verdict=verdict.kind,
        verdict_reason=verdict.reason,
        verdict_since=now,
        revision=F("revision") + 1,
    )
    events = [
        AuditEvent(
            "leaving", CLUSTER, row.name, revision=row.revision + 1, before=row.document
        )
        for row in going
    ]
    record_all(events, by=by, now=now)
    log_change(
        ChangeLogEntry(
            _reason([row.name for row in going], "leaving", by),
            gone=[row.name for row in going],
        ),
        changed=[row.pk for row in going],
    )
    return going


def finish_leaving(*, now: datetime) -> list[str]:
    """Remove the clusters whose agents confirmed, the others after 15 minutes; return their names."""
    rows = MemberCluster.objects.filter(membership=Membership.LEAVING)
    candidates = list(rows.select_related("credential"))
    hub_id()  # read once here: the threads of the calls use no database
    reachable = {row.pk: row for row in candidates if row.driver in DRIVERS}
    answers = call_all(
        {pk: partial(notify_cluster, row) for pk, row in reachable.items()},
        threads=_THREADS,
        seconds=_SECONDS,
        patience=_SECONDS_EACH,
        at_end=close_connections,
    )
    confirmed = {pk for pk, answer in answers if answer is True}
    confirmed |= {row.pk for row in candidates if row.pk not in reachable}
    away = [
        row
        for row in candidates
        if row.pk in confirmed or now - (row.leaving_since or now) >= LONGEST_LEAVE
    ]
    if away:
        forget(away, verb="left", by=None, now=now)
    return [row.name for row in away]


@transaction.atomic
def forget(
    rows: Collection[MemberCluster],
    *,
    verb: str,
    by: User | None,
    now: datetime,
) -> None:
    """Remove clusters from the fleet immediately; those that are no longer there are skipped."""
    lock_fleet()
    there = MemberCluster.objects.filter(pk__in=[row.pk for row in rows])
    rows = list(there.select_related("credential"))
    if not rows:
        return
    removed = [
        event
        for row in rows
        for event in remove_secret(row, credential_of(row), by=by, now=now)
    ]
    there.delete()
    remember_former(rows, now=now)
    events = [
        AuditEvent(
            verb, CLUSTER, row.name, revision=row.revision + 1, before=row.document
        )
        for row in rows
    ]
    record_all([*events, *removed], by=by, now=now)
    names = [row.name for row in rows]
    log_change(
        ChangeLogEntry(_reason(names, verb, by), opens=True, gone=names),
        changed=(),
        removed=names,
    )


def notify_cluster(row: MemberCluster) -> bool:
    driver_for(row).leave(timeout=_SECONDS_EACH)
    return True


def _reason(names: Collection[str], verb: str, by: User | None) -> str:
    return f"{named_or_counted(names, 'cluster')} {verb}{actor_words(by)}"
