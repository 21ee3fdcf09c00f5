"""What a simulated cluster can be told to fail with, in words."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

FAULT_KINDS: Mapping[str, str] = {
    "unreachable": "nothing reaches it, and it sends no heartbeat",
    "silent": "it does what it is told, and sends no heartbeat",
    "unhealthy": "it says of itself that it is not healthy",
    "timeOut": "calls are not answered in time",
    "refuse": "it refuses what is applied",
    "notReady": "what is applied does not become available",
    "flap": "what is applied is available and unavailable by turns",
    "lostState": "it has forgotten all that was applied before",
}
_ONLY = {"objectKind": "kind", "objectName": "name", "image": "image", "calls": "calls"}


def fault_words(fault: Mapping[str, Any]) -> str:
    """Say what is wrong by a fault, and for which objects or calls alone."""
    only = [f"{words} {_plain(fault[name])}" for name, words in _ONLY.items() if fault.get(name)]
    return FAULT_KINDS[fault["kind"]] + (f" (only {', '.join(only)})" if only else "")


def until_of(fault: Mapping[str, Any]) -> datetime | None:
    """Give when a fault ends by itself; None where somebody has to end it."""
    return datetime.fromisoformat(fault["until"]) if fault.get("until") else None


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
