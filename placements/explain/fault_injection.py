"""The faults that can be injected into a simulated cluster, in words."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

FAULT_KINDS: Mapping[str, str] = {
    "unreachable": "no connection and no heartbeat",
    "silent": "applies changes but sends no heartbeat",
    "unhealthy": "reports that it is unhealthy",
    "timeOut": "calls time out",
    "refuse": "rejects what is applied",
    "notReady": "workloads do not become available",
    "flap": "workloads alternate between available and unavailable",
    "lostState": "previously applied resources are deleted",
}
SHOWN: Mapping[str, str] = {
    "unreachable": "Shown within seconds; Not ready after 5 minutes.",
    "silent": "Heartbeat late after the next heartbeat fails to arrive; Not ready after 5 minutes.",
    "unhealthy": "Shown within seconds; Not ready after 5 minutes.",
    "timeOut": "Shown within seconds; Not ready after 5 minutes.",
    "refuse": "Shown when something is applied next.",
    "notReady": "Shown within seconds on the placements of the cluster.",
    "flap": "Shown within seconds on the placements of the cluster.",
    "lostState": "Shown within seconds; the resources are then applied again.",
}
"""When a fault shows on the pages."""
_ONLY = {"objectKind": "kind", "objectName": "name", "image": "image", "calls": "calls"}


def fault_words(fault: Mapping[str, Any]) -> str:
    only = []
    for name, words in _ONLY.items():
        value = fault.get(name)
        if value:
            only.append(
                f"{words} {', '.join(value) if isinstance(value, list) else value}"
            )
    return FAULT_KINDS[fault["kind"]] + (f" (only {', '.join(only)})" if only else "")


def until_of(fault: Mapping[str, Any]) -> datetime | None:
    """Return when a fault ends; None if it lasts until cleared."""
    return datetime.fromisoformat(fault["until"]) if fault.get("until") else None
