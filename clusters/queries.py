"""The fleet as values for the scheduler, and as manifests."""

import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from clusters.drivers.kubernetes.properties import ENTRYPOINT
from clusters.fleet import (
    ELIGIBLE,
    NO_USAGE,
    Cluster,
    Eligibility,
    EligibilityKind,
    Fleet,
    ResourceUsage,
    SeenNamespaces,
    Taint,
)
from clusters.health import LIMITS, AgentReport, judge, leaving
from clusters.managed_cluster import managed_from_plain
from clusters.models import ClusterTombstone, FleetState, MemberCluster, Membership
from fleetui.apimachinery.metadata import with_hub_metadata
from fleetui.hub_scope import LatestByHub


def _not_before(moment: datetime | None, start: datetime | None) -> datetime | None:
    return max(moment, start) if moment and start else moment


def _report(
    cluster: MemberCluster, observing_since: datetime | None
) -> AgentReport | None:
    if not cluster.has_reported:
        return None
    heartbeat, healthy_since = cluster.heartbeat_at, cluster.healthy_since
    if cluster.verdict != EligibilityKind.STALE_HEARTBEAT:
        heartbeat = _not_before(heartbeat, observing_since)
    if cluster.verdict != EligibilityKind.UNHEALTHY:
        healthy_since = _not_before(healthy_since, observing_since)
    return AgentReport(
        heartbeat=heartbeat,
        joined=cluster.agent_joined or None,
        healthy=cluster.agent_healthy or None,
        healthy_since=healthy_since,
    )


LONGEST_GAP = timedelta(seconds=30)
"""A longer pause between two rounds of observation means that the hub was down."""


def eligibility(
    cluster: MemberCluster, *, now: datetime, state: FleetState | None
) -> Eligibility:
    """Return the eligibility; only time in which the hub was observing counts against it.

    See `rules/lifecycle.md#heartbeats`.

    Without a state of the fleet, as for a cluster that joins now, all time counts.
    """
    if cluster.membership == Membership.LEAVING:
        return leaving()
    if not cluster.expects_report:
        return ELIGIBLE
    if not cluster.driver:
        return judge(_report(cluster, None), now=cluster.as_of or now, limits=LIMITS)
    if state and state.observed_at:
        now = min(now, state.observed_at + LONGEST_GAP)
    return judge(
        _report(cluster, state.observing_since if state else None),
        now=now,
        limits=LIMITS,
    )


def stays_eligible(*, now: datetime) -> Q:
    """Return the condition of observed clusters whose rows alone say that `eligibility` is as it was.

    They are most of a fleet: without them few rows are read again and again.
    """
    is_heard = Q(heartbeat_at__gte=now - LIMITS.heartbeat, has_reported=True)
    is_well = Q(verdict="", agent_joined="True", agent_healthy="True")
    return is_heard & is_well & ~Q(driver="")


_COLUMNS = (
    "name",
    "document",
    "properties",
    "usage",
    "verdict",
    "verdict_reason",
    "collects_namespaces",
    "namespaces_seen",
    "managed",
)


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet at one state of the counters; shared by all placements of a hub in this process."""

    version: int
    readings: int
    fleet: Fleet
    sequence: int = 0

    def advance(self) -> "FleetSnapshot":
        """Return the fleet at the current counters: this object if they are the same.

        Only the rows that changed since are read, unless these are too many or their tombstones are deleted.
        The counters are read first: the clusters may be newer than the counters, never older, and the writer
        of a decision compares the counters again.
        """
        counts = ("version", "readings", "sequence", "tombstones_deleted_to")
        state = FleetState.objects.values_list(*counts).first() or (0, 0, 0, 0)
        version, readings, sequence, deleted_to = state
        if version and (version, readings, sequence) == (
            self.version,
            self.readings,
            self.sequence,
        ):
            return self
        fleet = None
        if version and deleted_to <= self.sequence <= sequence:
            fleet = _changed_since(self.sequence, self.fleet)
        if fleet is None:
            fleet = Fleet(
                _values(
                    MemberCluster.objects.values_list(*_COLUMNS).iterator(
                        chunk_size=5000
                    )
                )
            )
        return FleetSnapshot(version, readings, fleet, sequence)


NO_FLEET = FleetSnapshot(0, 0, Fleet(), -1)
_lock = threading.Lock()
_latest: LatestByHub[FleetSnapshot] = LatestByHub()


def late_names() -> QuerySet[MemberCluster, str]:
    """Return the names of clusters that can be selected still, and do not answer."""
    late = MemberCluster.objects.filter(unanswered_since__isnull=False, verdict="")
    return late.order_by().values_list("name", flat=True)


def counters() -> tuple[int, int]:
    return FleetState.objects.values_list("version", "readings").first() or (0, 0)


def current_fleet() -> FleetSnapshot:
    """Return the current fleet; one for all placements of a hub in this process."""
    with _lock:
        snapshot = (_latest.get() or NO_FLEET).advance()
        _latest.put(snapshot)
        return snapshot


def load_fleet() -> Fleet:
    """Return the fleet as this transaction sees it; not cached, as it may be rolled back."""
    with _lock:
        snapshot = _latest.get() or NO_FLEET
    return snapshot.advance().fleet


def _changed_since(sequence: int, fleet: Fleet) -> Fleet | None:
    """Return the fleet with the changes after a sequence number, None if it has to be loaded."""
    most = len(fleet) * settings.FLEET_PATCH_PERCENT // 100
    rows = MemberCluster.objects.filter(changed_in__gt=sequence)
    changed = list(rows.values_list("changed_in", *_COLUMNS)[: most + 1])
    # Read after the rows: a cluster that leaves meanwhile has a tombstone with a higher number.
    tombstones = ClusterTombstone.objects.filter(changed_in__gt=sequence)
    left = dict(
        tombstones.order_by("changed_in").values_list("name", "changed_in")[: most + 1]
    )
    if len(changed) + len(left) > most:
        return None
    there = [row for row in changed if row[0] > left.get(row[1], 0)]
    gone = left.keys() - {row[1] for row in there}
    return fleet.with_clusters(
        _values(row[1:] for row in there), gone=gone & fleet.positions.keys()
    )


def clusters_changed_in(sequence: int, *, most: int) -> Fleet | None:
    """Return the clusters that changed in this transaction of the fleet or later; None if there are more."""
    rows = MemberCluster.objects.filter(changed_in__gte=sequence).values_list(
        *_COLUMNS
    )[: most + 1]
    return Fleet(_values(rows)) if len(rows) <= most else None


def clusters_named(names: Collection[str]) -> tuple[Fleet, dict[str, datetime]]:
    """Return these clusters as they are now, and when they joined; one query."""
    named = MemberCluster.objects.filter(name__in=names)
    rows = list(named.values_list("joined_at", *_COLUMNS))
    joined = {name: joined_at for joined_at, name, *_ in rows}
    return Fleet(_values(row[1:] for row in rows)), joined


def cluster_of(row: MemberCluster) -> Cluster:
    """Return the scheduler's value of a row, which need not be saved."""
    return next(_values([tuple(getattr(row, column) for column in _COLUMNS)]))


def _values(rows: Iterable[tuple[Any, ...]]) -> Iterator[Cluster]:
    taints_of: dict[tuple[Any, ...], tuple[Taint, ...]] = {}
    for (
        name,
        document,
        properties,
        usage,
        verdict,
        reason,
        collects,
        namespaces,
        managed,
    ) in rows:
        taints = tuple(
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in document["spec"].get("taints") or ()
        )
        yield Cluster(
            name,
            document["metadata"].get("labels") or {},
            taints_of.setdefault(taints, taints),
            properties,
            ResourceUsage(**usage) if usage else NO_USAGE,
            Eligibility(EligibilityKind(verdict) if verdict else None, reason),
            SeenNamespaces(None if namespaces is None else frozenset(namespaces))
            if collects
            else None,
            managed_from_plain(managed),
        )


def manifest_of(cluster: MemberCluster) -> dict[str, Any]:
    """Return the manifest of a cluster with its status, without its address."""
    return with_hub_metadata(
        cluster.document,
        status_of(cluster),
        uid=str(cluster.uid),
        revision=cluster.revision,
        generation=cluster.spec_generation,
        created_at=cluster.created_at,
    )


def status_of(cluster: MemberCluster, *, has_address: bool = False) -> dict[str, Any]:
    """Return the status of the MemberCluster API (`rules/lifecycle.md#member-clusters`).

    `has_address`: with the address of the API server, which is for administrators of clusters.
    `simulated` is an extension: it marks a cluster that exists only in this console.
    """
    status: dict[str, Any] = {}
    if cluster.expects_report:
        is_joined = cluster.membership == Membership.JOINED
        status["conditions"] = [
            {
                "type": "Joined",
                "status": str(is_joined),
                "reason": cluster.membership.capitalize(),
            }
        ]
    if cluster.has_reported:
        conditions = (
            {"type": "Joined", "status": cluster.agent_joined},
            {
                "type": "Healthy",
                "status": cluster.agent_healthy,
                "message": cluster.health_message,
                "lastTransitionTime": _written(cluster.healthy_since),
            },
        )
        agent = {
            "type": "MemberAgent",
            "conditions": [
                _filled(condition) for condition in conditions if condition["status"]
            ],
        }
        heartbeat = _filled({"lastReceivedHeartbeat": _written(cluster.heartbeat_at)})
        status["agentStatus"] = [{**agent, **heartbeat}]
    if cluster.properties:
        status["properties"] = {
            name: {"value": value}
            for name, value in cluster.properties.items()
            if has_address or name != ENTRYPOINT
        }
    if cluster.usage:
        status["resourceUsage"] = cluster.usage
    if cluster.is_simulated:
        status["simulated"] = True
    return status


def _written(moment: datetime | None) -> str:
    return moment.isoformat().replace("+00:00", "Z") if moment else ""


def _filled(values: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}
