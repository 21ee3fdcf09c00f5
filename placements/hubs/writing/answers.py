"""What an answer of a hub to a write means: its words with paths, conflicts, or unknown (13.3, 13.6)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.access import cut_message
from clusters.drivers.kubernetes.client import Response
from clusters.models import HubWriteState
from fleetui.apimachinery.errors import FieldError, format_path
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.secrets import HIDDEN, HIDDEN_AND_CHANGED
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.write_requests import (
    ABSENT,
    Path,
    Verb,
    WriteRequest,
    leaf_paths,
    owners_of,
    server_path,
    value_at,
    without_paths,
)

LONGEST_ANSWER = 4_096
LONGEST_CAUSE, MOST_CAUSES = 500, 100
REMOVED = "(hidden)"
_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]{1,253})" denied the request')
_CONFLICT_WITH = re.compile(r'conflict with "(?P<manager>[^"]{0,253})"')
_OTHER_UID = re.compile(r"UID in (the )?precondition|uid mismatch")
_NOT_SENT = frozenset(
    {
        "dns",
        "address",
        "tls",
        "refused",
        "proxy",
        "tls-insecure-not-allowed",
        "not-in-cluster",
        "credentials-unreadable",
    }
)
_NOT_COMPARED = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "uid"),
    ("metadata", "resourceVersion"),
)
_BUSY = frozenset({"http-429", "http-503"})


class WriteOutcome(StrEnum):
    """Why a hub did not accept a write; stable codes, for programs."""

    ACCEPTED = "accepted"
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    WEBHOOK = "webhook"
    DELETED = "deleted"
    REPLACED = "replaced"
    EXISTS = "exists"
    STALE = "stale"
    CONFLICT = "conflict"
    TOO_LARGE = "too-large"
    BUSY = "busy"
    UNAUTHORIZED = "unauthorized"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"
    NOT_APPLIED = "not-applied"
    REFUSED = "refused"


_STATES = {
    WriteOutcome.ACCEPTED: HubWriteState.ACCEPTED,
    WriteOutcome.CONFLICT: HubWriteState.CONFLICT,
    WriteOutcome.STALE: HubWriteState.CONFLICT,
    WriteOutcome.UNREACHABLE: HubWriteState.UNREACHABLE,
    WriteOutcome.UNKNOWN: HubWriteState.UNKNOWN,
    WriteOutcome.NOT_APPLIED: HubWriteState.NOT_APPLIED,
}


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another manager owns; `path` is empty where the hub names one that is not in the body."""

    path: Path
    field: str
    manager: str
    operation: str = ""
    at: str = ""
    ours: Any = None
    theirs: Any = None

    @property
    def name(self) -> str:
        return format_path(self.path) if self.path else self.field


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What became of a request; `message` is in the words of the hub where it has any."""

    outcome: WriteOutcome
    message: str = ""
    status: int | None = None
    causes: tuple[FieldError, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    webhook: str = ""
    content: Manifest | None = None

    @property
    def state(self) -> HubWriteState:
        return _STATES.get(self.outcome, HubWriteState.REFUSED)

    @property
    def is_accepted(self) -> bool:
        return self.outcome is WriteOutcome.ACCEPTED

    @property
    def resource_version(self) -> str:
        return text_of(
            mapping_at(self.content, "metadata").get("resourceVersion"), longest=64
        )


_OUTCOMES = {
    400: WriteOutcome.INVALID,
    401: WriteOutcome.UNAUTHORIZED,
    403: WriteOutcome.FORBIDDEN,
    404: WriteOutcome.DELETED,
    413: WriteOutcome.TOO_LARGE,
    422: WriteOutcome.INVALID,
}


def answer_of(
    request: WriteRequest, response: Response, live: Manifest | None
) -> WriteAnswer:
    """Return what a response means; `live` is the object that the request was made for."""
    status, body = response.status, response.body
    if status in (200, 201, 202):
        content = body if body.get("kind") != "Status" else None
        return WriteAnswer(WriteOutcome.ACCEPTED, "", status, content=content)
    text = str(body.get("message") or f"the hub answers {status}")
    message = shown_message(request, text)
    causes = tuple(causes_in(request, body))
    if match := _WEBHOOK.search(message):
        outcome, webhook = WriteOutcome.WEBHOOK, match["name"]
        return WriteAnswer(outcome, message, status, causes, webhook=webhook)
    if conflicts := tuple(conflicts_in(request, body, live)):
        return WriteAnswer(WriteOutcome.CONFLICT, message, status, conflicts=conflicts)
    outcome = _OUTCOMES.get(status, WriteOutcome.REFUSED)
    if status == 409:
        outcome = _conflict_outcome(body, message)
    elif status == 422 and any(cause.path == "metadata.uid" for cause in causes):
        outcome = WriteOutcome.REPLACED
    elif status == 500 and "failed to create typed patch object" in message:
        outcome = WriteOutcome.INVALID
    elif status >= 500:
        outcome = WriteOutcome.UNKNOWN
    return WriteAnswer(outcome, message, status, causes)


def failure_of(error: DriverUnavailable, *, is_sent: bool) -> WriteAnswer:
    """Return what a failed request means: it was not sent, or its outcome is unknown."""
    digits = error.code.removeprefix("http-")
    status = int(digits) if digits.isdecimal() else None
    if error.code in _BUSY:
        return WriteAnswer(WriteOutcome.BUSY, f"The hub is busy: {error}", status)
    if error.code == "credentials":
        return WriteAnswer(WriteOutcome.UNAUTHORIZED, str(error), 401)
    if not is_sent or error.code in _NOT_SENT:
        return WriteAnswer(WriteOutcome.UNREACHABLE, f"Nothing was sent: {error}")
    return WriteAnswer(WriteOutcome.UNKNOWN, str(error), status)


def shown_message(
    request: WriteRequest, message: str, longest: int = LONGEST_ANSWER
) -> str:
    """Return a message without the secret values of the body, cut."""
    for text in request.hidden_texts():
        message = message.replace(text, REMOVED)
    return cut_message(message, longest)


def causes_in(request: WriteRequest, body: Manifest) -> Iterable[FieldError]:
    for one in items_at(body, "details", "causes")[:MOST_CAUSES]:
        cause = mapping_at(one)
        message = shown_message(request, str(cause.get("message") or ""), LONGEST_CAUSE)
        path = text_of(cause.get("field")).removeprefix(".")
        reason = str(cause.get("reason") or "invalid")[:60]
        yield FieldError(path.replace("<nil>", ""), reason, message)


def _conflict_outcome(body: Manifest, message: str) -> WriteOutcome:
    if body.get("reason") == "AlreadyExists":
        return WriteOutcome.EXISTS
    if "no existing object was found" in message:
        return WriteOutcome.DELETED
    # An API server checks the UID before the resourceVersion, with the same reason.
    return WriteOutcome.REPLACED if _OTHER_UID.search(message) else WriteOutcome.STALE


def conflicts_in(
    request: WriteRequest, body: Manifest, live: Manifest | None
) -> Iterable[FieldConflict]:
    """Yield the fields that others own, with the time from the live object where it has one."""
    paths = {
        server_path(path[:end]): path[:end]
        for path in leaf_paths(request.body)
        for end in range(1, len(path) + 1)
    }
    for cause in map(mapping_at, items_at(body, "details", "causes")[:MOST_CAUSES]):
        if cause.get("reason") != "FieldManagerConflict":
            continue
        field = text_of(cause.get("field"))
        match = _CONFLICT_WITH.search(str(cause.get("message") or ""))
        manager = match["manager"] if match else ""
        path = paths.get(field)
        if path is None:
            yield FieldConflict((), field, manager)
            continue
        owners = owners_of(live or {}, path)
        entry = next((owner for owner in owners if owner.get("manager") == manager), {})
        operation, at = (text_of(entry.get(key)) for key in ("operation", "time"))
        values = [value_at(document, path) for document in (request.body, live)]
        ours, theirs = (None if value is ABSENT else value for value in values)
        yield FieldConflict(path, field, manager, operation, at, ours, theirs)


def read_back(request: WriteRequest, live: Manifest | None) -> WriteAnswer:
    """Return what the object says about a write of unknown outcome.

    While its resourceVersion is the one of the precondition, the hub may still be working on the request.
    """
    metadata = mapping_at(live, "metadata")
    is_there = live is not None and request.uid in ("", metadata.get("uid"))
    is_before = is_there and metadata.get("resourceVersion") == request.resource_version
    if request.verb is Verb.DELETE:
        is_made = not is_there or bool(metadata.get("deletionTimestamp"))
    else:
        body = without_paths(request.body, _NOT_COMPARED)
        is_made = is_there and not is_before and _contains(live, body)
    if request.verb is Verb.CREATE:
        is_before = live is None
    if is_made:
        return WriteAnswer(
            WriteOutcome.ACCEPTED, "The object has this write.", content=live
        )
    if is_before:
        return WriteAnswer(
            WriteOutcome.UNKNOWN, "The object does not have this write yet."
        )
    return WriteAnswer(
        WriteOutcome.NOT_APPLIED, "The object does not have this write, or no longer."
    )


def _contains(live: Any, wanted: Any) -> bool:
    if wanted in (HIDDEN, HIDDEN_AND_CHANGED):
        return True  # the record does not have the value
    if isinstance(wanted, Mapping):
        fields = mapping_at(live)
        return all(_contains(fields.get(key), one) for key, one in wanted.items())
    if isinstance(wanted, list):
        # The hub adds defaults to items, and conditions of others to a status.
        return isinstance(live, list) and all(
            any(_contains(one, each) for one in live) for each in wanted
        )
    return bool(live == wanted)
