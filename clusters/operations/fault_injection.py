"""Fault injection into simulated clusters."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.drivers.simulated.configuration import (
    DriverCall,
    FaultKind,
    SimulatedFault,
    parse_configuration,
)
from clusters.health import LIMITS
from clusters.models import FleetState, MemberCluster
from clusters.observation import unhealthy_since
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import UnknownClusterError
from clusters.operations.join import CLUSTER
from fleetui.audit import AuditEvent, record
from fleetui.concurrency import check_revision
from fleetui.errors import FleetError

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
    row = MemberCluster.objects.filter(name=name).first()
    if row is None:
        raise UnknownClusterError(name)
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
    row.connection, row.revision, row.observe_at = connection, row.revision + 1, now
    row.save(update_fields=["connection", "revision", "observe_at"])
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
