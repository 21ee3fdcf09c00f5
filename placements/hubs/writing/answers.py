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
from fleetui.apimachinery.secrets import HIDDEN, HIDDEN_AND_CHANGED
from placements.hubs.kinds.base import Manifest, items_at, mapping_at, text_of
from placements.hubs.write_bodies import (
    ABSENT,
    Path,
    leaf_paths,
    owners_of,
    server_path,
    value_at,
)
from placements.hubs.write_requests import Verb, WriteRequest

LONGEST_ANSWER = 4_096
LONGEST_CAUSE, MOST_CAUSES = 500, 100
REMOVED = "(hidden)"
_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]{1,253})" denied the request')
_CONFLICT_WITH = re.compile(r'conflict with "(?P<manager>[^"]{0,253})"')
_OTHER_UID = re.compile(r"UID in (the )?precondition|uid mismatch")
_NO_SCHEMA = "failed to create typed patch object"
_NOT_SENT = frozenset(
    {
        *("dns", "address", "tls", "refused", "proxy", "tls-insecure-not-allowed"),
        *("not-in-cluster", "credentials-unreadable"),
    }
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


def answer_of(
    request: WriteRequest, response: Response, live: Manifest | None
) -> WriteAnswer:
    """Return what a response means; `live` is the object that the request was made for."""
    status, body = response.status, response.body
    if status in (200, 201, 202):
        is_object = body.get("kind") != "Status"
        return WriteAnswer(
            WriteOutcome.ACCEPTED, "", status, content=body if is_object else None
        )
    message = shown_message(
        request, str(body.get("message") or f"the hub answers {status}")
    )
    causes = tuple(causes_in(request, body))
    if match := _WEBHOOK.search(message):
        return WriteAnswer(
            WriteOutcome.WEBHOOK, message, status, causes, webhook=match["name"]
        )
    outcome = WriteOutcome.REFUSED
    if status == 409:
        conflicts = tuple(conflicts_in(request, body, live))
        outcome = (
            WriteOutcome.CONFLICT if conflicts else _conflict_outcome(body, message)
        )
        return WriteAnswer(
            outcome, message, status, () if conflicts else causes, conflicts
        )
    if status == 422 and any(one.path == "metadata.uid" for one in causes):
        outcome = WriteOutcome.REPLACED
    elif status in (400, 422) or (status == 500 and _NO_SCHEMA in message):
        outcome = WriteOutcome.INVALID
    elif status >= 500:
        outcome = WriteOutcome.UNKNOWN
    else:
        usual = {
            401: WriteOutcome.UNAUTHORIZED,
            403: WriteOutcome.FORBIDDEN,
            404: WriteOutcome.DELETED,
        }
        outcome = {**usual, 413: WriteOutcome.TOO_LARGE}.get(status, outcome)
    return WriteAnswer(outcome, message, status, causes)


def failure_of(error: DriverUnavailable, *, is_sent: bool) -> WriteAnswer:
    """Return what a failed request means: it was not sent, or its outcome is unknown."""
    if error.code in _BUSY:
        return WriteAnswer(
            WriteOutcome.BUSY,
            f"The hub is busy: {error}",
            int(error.code.partition("-")[2]),
        )
    if error.code == "credentials":
        return WriteAnswer(WriteOutcome.UNAUTHORIZED, str(error), 401)
    if not is_sent or error.code in _NOT_SENT:
        return WriteAnswer(WriteOutcome.UNREACHABLE, f"Nothing was sent: {error}")
    status = error.code.partition("-")[2] if error.code.startswith("http-") else ""
    return WriteAnswer(
        WriteOutcome.UNKNOWN, str(error), int(status) if status else None
    )


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
        yield FieldError(
            "" if path == "<nil>" else path,
            str(cause.get("reason") or "invalid")[:60],
            message,
        )


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
    leaves = leaf_paths(request.body)
    paths = {
        server_path(path[:end]): path[:end]
        for path in leaves
        for end in range(1, len(path) + 1)
    }
    for one in items_at(body, "details", "causes")[:MOST_CAUSES]:
        cause = mapping_at(one)
        if cause.get("reason") != "FieldManagerConflict":
            continue
        field = text_of(cause.get("field"))
        match = _CONFLICT_WITH.search(str(cause.get("message") or ""))
        manager, path = (match["manager"] if match else ""), paths.get(field, ())
        owners = owners_of(live, path) if live and path else ()
        entry = next((each for each in owners if each.get("manager") == manager), {})
        ours, theirs = (
            value_at(request.body, path),
            value_at(live, path) if path else ABSENT,
        )
        yield FieldConflict(
            path,
            field,
            manager,
            text_of(entry.get("operation")),
            text_of(entry.get("time")),
            None if not path or ours is ABSENT else ours,
            None if theirs is ABSENT else theirs,
        )


def read_back(
    request: WriteRequest, live: Manifest | None, *, manager: str
) -> WriteAnswer:
    """Return what the object says about a write of unknown outcome.

    While its resourceVersion is the one of the precondition, the hub may still be working on the request.
    """
    metadata = mapping_at(live, "metadata")
    is_same = live is not None and request.uid in ("", metadata.get("uid"))
    if request.verb is Verb.DELETE:
        is_made = not is_same or bool(metadata.get("deletionTimestamp"))
        is_open = (
            is_same and metadata.get("resourceVersion") == request.resource_version
        )
    elif live is None or not is_same:
        is_made, is_open = False, live is None and request.verb is Verb.CREATE
    else:
        is_open = request.verb is not Verb.CREATE and (
            metadata.get("resourceVersion") == request.resource_version
        )
        is_made = (
            not is_open
            and _has_body(request, live)
            and _has_owner(request, live, manager)
        )
    if is_made:
        return WriteAnswer(
            WriteOutcome.ACCEPTED, "The object has this write.", content=live
        )
    if is_open:
        return WriteAnswer(
            WriteOutcome.UNKNOWN, "The object does not have this write yet."
        )
    return WriteAnswer(
        WriteOutcome.NOT_APPLIED, "The object does not have this write, or no longer."
    )


def _has_body(request: WriteRequest, live: Manifest) -> bool:
    body = {
        key: one
        for key, one in request.body.items()
        if key not in ("apiVersion", "kind")
    }
    metadata = {
        key: one
        for key, one in mapping_at(body, "metadata").items()
        if key not in ("uid", "resourceVersion")
    }
    return _contains(live, {**body, "metadata": metadata})


def _contains(live: Any, wanted: Any) -> bool:
    if wanted in (HIDDEN, HIDDEN_AND_CHANGED):
        return True  # the record does not have the value
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            return False
        return all(
            live.get(key) is None if one is None else _contains(live.get(key), one)
            for key, one in wanted.items()
        )
    if isinstance(wanted, list):
        # The hub adds defaults to items, and conditions of others to a status.
        return isinstance(live, list) and all(
            any(_contains(one, each) for one in live) for each in wanted
        )
    return bool(live == wanted)


def _has_owner(request: WriteRequest, live: Manifest, manager: str) -> bool:
    """Return whether our manager owns what the body has; a removal leaves no owner."""
    operation = "Apply" if request.verb is Verb.APPLY else "Update"
    entries = [
        mapping_at(one)
        for one in items_at(live, "metadata", "managedFields")
        if (mapping_at(one).get("manager"), mapping_at(one).get("operation"))
        == (manager, operation)
        and (mapping_at(one).get("subresource") or "") in ("", request.subresource)
    ]
    is_set = any(
        value_at(request.body, path) is not None for path in leaf_paths(request.body)
    )
    if request.verb is Verb.PATCH and not is_set:
        return True
    return bool(entries)


def is_own_conflict(one: FieldConflict, manager: str) -> bool:
    """Return whether the console itself owns a field, by a creation or a merge patch."""
    return one.manager == manager
