"""MemberCluster documents as a hub would hold them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from placements.demo.demo import Document
from placements.scheduling.door.kinds import MEMBER_KIND, MEMBER_VERSIONS

SIMULATED_ANNOTATION = "fleetui.io/simulated"
NODES = "kubernetes-fleet.io/node-count"
CPU_COST, MEMORY_COST = "example.com/cost-per-cpu", "example.com/cost-per-gib"
CORDON = ("cordon-key", "cordon-value")
_JOINED_AGO, _SICK_AGO, _SILENT_AGO = timedelta(days=40), timedelta(minutes=25), timedelta(hours=3)
_HEARTBEAT_SECONDS = 15


class SimulatedFault(StrEnum):
    """What is wrong with a simulated cluster: it never beats, or it beats and says that it is not healthy."""

    SILENT = "silent"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster is and how busy; every node has `cpu` cores and 4 GiB for each of them."""

    nodes: int = 6
    cpu: int = 8
    busy_percent: int = 40
    millicents_per_cpu: int = 4000


def member(
    name: str,
    labels: Mapping[str, str],
    *,
    now: datetime,
    size: Size | None = None,
    taints: Iterable[tuple[str, str]] = (),
    fault: SimulatedFault | None = None,
) -> Document:
    """Write a MemberCluster that has reported lately; taints are keys and values."""
    written = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints]
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {
            "name": name,
            "labels": dict(labels),
            **({"annotations": {SIMULATED_ANNOTATION: fault.value}} if fault else {}),
        },
        "spec": {
            "identity": {
                "kind": "ServiceAccount",
                "name": f"fleet-member-{name}",
                "namespace": "fleet-system",
                "apiGroup": "",
            },
            "heartbeatPeriodSeconds": _HEARTBEAT_SECONDS,
            **({"taints": written} if written else {}),
        },
        "status": _status(size or Size(), now, fault),
    }


def _status(size: Size, now: datetime, fault: SimulatedFault | None) -> Document:
    silent_for = _SILENT_AGO if fault is SimulatedFault.SILENT else timedelta()
    reported = _written(now - silent_for)
    return {
        "agentStatus": [_agent(now, reported, is_healthy=fault is not SimulatedFault.UNHEALTHY)],
        "properties": {
            name: {"value": value, "observationTime": reported} for name, value in _properties(size).items()
        },
        "resourceUsage": {**_usage(size), "observationTime": reported},
    }


def _agent(now: datetime, reported: str, *, is_healthy: bool) -> Document:
    joined = _written(now - _JOINED_AGO)
    since = joined if is_healthy else _written(now - _SICK_AGO)
    return {
        "type": "MemberAgent",
        "conditions": [
            {"type": "Joined", "status": "True", "reason": "Joined", "lastTransitionTime": joined},
            {
                "type": "Healthy",
                "status": "True" if is_healthy else "False",
                "reason": "Healthy" if is_healthy else "NotReady",
                "lastTransitionTime": since,
            },
        ],
        "lastReceivedHeartbeat": reported,
    }


def _properties(size: Size) -> dict[str, str]:
    return {
        NODES: str(size.nodes),
        CPU_COST: f"{size.millicents_per_cpu / 100_000:.5f}",
        MEMORY_COST: f"{size.millicents_per_cpu / 800_000:.5f}",
    }


def _usage(size: Size) -> Document:
    """Write capacity, what of it is for workloads, and what of that is free, in cores and GiB."""
    milli = size.nodes * size.cpu * 1000
    shares = {"capacity": 100, "allocatable": 95, "available": 95 - size.busy_percent}
    return {
        name: {"cpu": f"{milli * share // 100}m", "memory": f"{milli * share * 4 // 100_000}Gi"}
        for name, share in shares.items()
    }


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
