"""Reading the fleet: as the scheduler sees it, and as its manifests say."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from clusters.models import FleetState, MemberCluster, Membership
from placements.scheduling.fleet import Cluster, Eligibility, EligibilityKind, Fleet, ResourceUsage, Taint

_COLUMNS = ("name", "document", "properties", "usage", "verdict", "verdict_reason")
_NO_USAGE = ResourceUsage()


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at one pair of counters; shared by all placements of this process."""

    version: int
    readings: int
    fleet: Fleet


_lock = threading.Lock()
_latest: FleetView | None = None


def counters() -> tuple[int, int]:
    """Give the fleet's version and readings."""
    row = FleetState.objects.filter(id=1).values_list("version", "readings").first()
    return row or (0, 0)


def fleet_now() -> FleetView:
    """Give the fleet as it is, loaded once per pair of counters.

    The counters are read first: what is read may be newer than they say, never older, and whoever writes
    a decision compares them again.
    """
    global _latest  # noqa: PLW0603 -- one fleet per process is the point
    version, readings = counters()
    with _lock:
        if _latest is None or (_latest.version, _latest.readings) != (version, readings) or not version:
            _latest = FleetView(version, readings, Fleet(_clusters()))
        return _latest


def fleet_unkept() -> Fleet:
    """Give the fleet as this transaction sees it; what is loaded is not kept, as it may be rolled back."""
    with _lock:
        if _latest is not None and _latest.version and (_latest.version, _latest.readings) == counters():
            return _latest.fleet
    return Fleet(_clusters())


def forget_cached_fleet() -> None:
    """Drop what this process keeps of the fleet: for tests, where rows vanish."""
    global _latest  # noqa: PLW0603 -- see above
    _latest = None


def cluster_of(row: MemberCluster) -> Cluster:
    """Give one cluster as the scheduler sees it; the row need not be saved."""
    return next(_values([tuple(getattr(row, column) for column in _COLUMNS)]))


def _clusters() -> Iterator[Cluster]:
    return _values(MemberCluster.objects.values_list(*_COLUMNS).iterator(chunk_size=5000))


def _values(rows: Iterable[tuple[Any, ...]]) -> Iterator[Cluster]:
    taints_of: dict[tuple[Any, ...], tuple[Taint, ...]] = {}
    for name, document, properties, usage, verdict, reason in rows:
        taints = tuple(_taint(one) for one in document["spec"].get("taints") or ())
        yield Cluster(
            name,
            document["metadata"].get("labels") or {},
            taints_of.setdefault(taints, taints),
            properties,
            ResourceUsage(**usage) if usage else _NO_USAGE,
            Eligibility(EligibilityKind(verdict) if verdict else None, reason),
        )


def _taint(written: dict[str, str]) -> Taint:
    return Taint(written["key"], written.get("value") or "", written["effect"])


def manifest_of(cluster: MemberCluster) -> dict[str, Any]:
    """Give the manifest as it was written, with our status."""
    return {**cluster.document, "status": status_of(cluster)}


def status_of(cluster: MemberCluster) -> dict[str, Any]:
    """Give the status in the words of the MemberCluster API (`spec/lifecycle.md` B.1.6).

    `simulated` is a word of ours: a cluster that exists only here says so wherever it appears.
    """
    status: dict[str, Any] = {}
    if cluster.expects_report:
        status["conditions"] = [_joined(cluster)]
    if cluster.has_reported:
        status["agentStatus"] = [_agent_status(cluster)]
    if cluster.properties:
        status["properties"] = {name: {"value": value} for name, value in cluster.properties.items()}
    if cluster.usage:
        status["resourceUsage"] = cluster.usage
    if cluster.is_simulated:
        status["simulated"] = True
    return status


def _joined(cluster: MemberCluster) -> dict[str, str]:
    is_joined = cluster.membership == Membership.JOINED
    return {"type": "Joined", "status": str(is_joined), "reason": cluster.membership.capitalize()}


def _agent_status(cluster: MemberCluster) -> dict[str, Any]:
    conditions = [{"type": "Joined", "status": cluster.agent_joined}] if cluster.agent_joined else []
    if cluster.agent_healthy:
        since = {"lastTransitionTime": _written(cluster.healthy_since)} if cluster.healthy_since else {}
        conditions.append({"type": "Healthy", "status": cluster.agent_healthy, **since})
    heartbeat = {"lastReceivedHeartbeat": _written(cluster.heartbeat_at)} if cluster.heartbeat_at else {}
    return {"type": "MemberAgent", "conditions": conditions, **heartbeat}


def _written(moment: Any) -> str:
    return str(moment.isoformat().replace("+00:00", "Z"))
