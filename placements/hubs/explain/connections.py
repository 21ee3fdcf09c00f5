"""The words of live hubs: states with their level and age, streams, permissions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.models import HubStream, HubWrite
from placements.explain.connections import CheckReport, PermissionRow, check_report
from placements.hubs.connections.discovery import (
    READ_VERBS,
    WRITE_VERBS,
    HubCheckReport,
)
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.queries import NO_WATCHER, HubSummary
from placements.hubs.writing.answers import WriteOutcome

STATES: Mapping[str, tuple[str, str]] = {
    "new": ("pending", "New"),
    "connecting": ("progress", "Connecting"),
    "syncing": ("progress", "First sync"),
    "live": ("healthy", "Live"),
    "stale": ("attention", "Out of date"),
    "unreachable": ("unknown", "Unreachable"),
    "refused": ("failed", "Access denied"),
    "unsuitable": ("failed", "Not supported"),
    "paused": ("suspended", "Paused"),
    "removed": ("pending", "Removed"),
}
STREAM_STATES: Mapping[str, tuple[str, str]] = {
    "idle": ("pending", "Not started"),
    "listing": ("progress", "Listing"),
    "watching": ("healthy", "Watching"),
    "absent": ("pending", "Not served"),
    "forbidden": ("attention", "Not allowed"),
    "failing": ("failed", "Failing"),
}
WRITE_STATES: Mapping[str, tuple[str, str]] = {
    "planned": ("pending", "Planned"),
    "sent": ("progress", "Sent"),
    "accepted": ("healthy", "Accepted"),
    "refused": ("failed", "Refused"),
    "conflict": ("attention", "Conflict"),
    "unreachable": ("failed", "Not sent"),
    "unknown": ("attention", "Unknown"),
    "not-applied": ("failed", "Not applied"),
}
OUTCOMES: Mapping[WriteOutcome, str] = {
    WriteOutcome.ACCEPTED: "The hub accepts this.",
    WriteOutcome.INVALID: "The hub refuses this as invalid.",
    WriteOutcome.FORBIDDEN: "The hub does not allow this.",
    WriteOutcome.WEBHOOK: "A webhook of the hub refuses this.",
    WriteOutcome.DELETED: "The object was deleted on the hub.",
    WriteOutcome.REPLACED: "The object was deleted on the hub and created again.",
    WriteOutcome.EXISTS: "The hub has an object of this name.",
    WriteOutcome.STALE: "The object changed on the hub meanwhile.",
    WriteOutcome.CONFLICT: "Other managers own some of the fields.",
    WriteOutcome.TOO_LARGE: "This is too large for the hub.",
    WriteOutcome.BUSY: "The hub is busy.",
    WriteOutcome.UNAUTHORIZED: "The hub rejects the credentials of the console.",
    WriteOutcome.UNREACHABLE: "The hub did not answer.",
    WriteOutcome.UNKNOWN: "The outcome is unknown.",
    WriteOutcome.NOT_APPLIED: "The hub did not apply this.",
    WriteOutcome.REFUSED: "The hub refuses this.",
}
_RETRIED = frozenset({"absent", "forbidden", "failing"})
_OUTDATED = frozenset({"stale", "unreachable", "refused", "unsuitable", "paused"})
_ATTEMPTS = {
    "unreachable": "Next attempt within a minute.",
    "refused": "Next attempt within 5 minutes, or when the credentials are replaced.",
    "unsuitable": "Next attempt within 5 minutes.",
    "paused": "No requests are sent until the hub is resumed.",
}
MODES = {"read": "Read only", "operate": "Read and write"}
IDENTITIES = {
    "shared": "Account of the console",
    "impersonate": "Person who requests it (impersonation)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHub(HubSummary):
    """A hub as pages show it; `next_attempt` is a sentence, "" where nothing is known of one."""

    level: str
    word: str
    kind: str
    mode: str
    next_attempt: str
    unresolved: int
    is_current: bool
    has_banner: bool


def shown_hub(one: HubSummary, *, now: datetime, unresolved: int = 0) -> ShownHub:
    level, word = STATES[one.state]
    if one.state == "syncing" and one.reason:
        word = f"{word}, {one.reason}"
        reason = ""
    else:
        reason = one.reason
    return ShownHub(
        one.hub,
        one.state,
        reason,
        one.since,
        one.heard_at,
        one.clusters,
        one.placements,
        one.retry_at,
        one.silent_since,
        level=level,
        word=word,
        kind=HUB_KINDS[one.hub.kind].title,
        mode=MODES[one.hub.mode],
        next_attempt=next_attempt(one, now=now),
        unresolved=unresolved,
        is_current=one.state == "live",
        has_banner=one.state in _OUTDATED or bool(reason),
    )


def next_attempt(one: HubSummary, *, now: datetime) -> str:
    """Return when the connection of a hub that is out of date is tried again."""
    if one.state not in _OUTDATED:
        return ""
    if one.reason == NO_WATCHER:
        return "Start manage.py up, or manage.py watch_hubs."
    if one.retry_at and one.retry_at > now:
        return f"Next attempt at {one.retry_at:%Y-%m-%d %H:%M:%S} UTC."
    if one.state == "stale":  # without a failure it is only silent
        return _ATTEMPTS["unreachable"] if one.retry_at else ""
    return _ATTEMPTS.get(one.state, "")


def shown_stream(row: HubStream) -> dict[str, Any]:
    level, word = STREAM_STATES[row.state]
    retry_at = row.retry_at if row.state in _RETRIED else None
    return {"row": row, "level": level, "word": word, "retry_at": retry_at}


def shown_write(row: HubWrite) -> dict[str, Any]:
    level, word = WRITE_STATES[row.state]
    place = f"{row.namespace}/{row.name}" if row.namespace else row.name
    part = f" ({row.subresource})" if row.subresource else ""
    return {
        "row": row,
        "level": level,
        "word": word,
        "subject": f"{row.kind} {place}{part}",
    }


def permission_row(kind: Mapping[str, Any]) -> PermissionRow:
    """Return the row of a kind; what a required kind lacks to be read is missing."""
    verbs = kind["verbs"]
    is_required = kind["isRequired"]
    cells = tuple((verb, verbs.get(verb)) for verb in (*READ_VERBS, *WRITE_VERBS))
    missing = ", ".join(verb for verb in READ_VERBS if is_required and not verbs[verb])
    level = "failed" if missing else ""
    return PermissionRow(
        kind["resource"], cells, missing, level=level, is_required=is_required
    )


def hub_check_report(report: HubCheckReport) -> CheckReport:
    return check_report(report, tuple(map(permission_row, report.documents)))
