"""The bytes of a watch as its events (`rules/live-hub.md#streams`)."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleetui.apimachinery.model import mapping_at

LONGEST_LINE = 8 * 1024 * 1024


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class LineTooLong(ValueError):
    def __init__(self) -> None:
        super().__init__(
            f"a line of the watch has more than {LONGEST_LINE // 1024 // 1024} MiB"
        )


class UnreadableLine(ValueError):
    """A line of a watch is not an event."""


class UnknownEventType(UnreadableLine):
    """An event of a type that this console does not know; what follows it can be read."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    type: EventType
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        version = mapping_at(self.object, "metadata").get("resourceVersion")
        return version if isinstance(version, str) else ""


class LineReader:
    """Divides what arrives into lines; at most one line is held."""

    def __init__(self, *, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without empty ones. Raise LineTooLong."""
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces = []
            self._size = 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._longest or any(
            len(line) > self._longest for line in lines
        ):
            raise LineTooLong
        return [line for line in lines if line.strip()]


def parse_event(line: bytes) -> WatchEvent:
    """Return the event of a line. Raise UnreadableLine, UnknownEventType."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnreadableLine("a line of the watch is not JSON") from error
    if not isinstance(content, dict) or not isinstance(content.get("object"), dict):
        raise UnreadableLine("a line of the watch is not an event")
    try:
        kind = EventType(str(content.get("type")))
    except ValueError as error:
        raise UnknownEventType("a line of the watch has an unknown type") from error
    return WatchEvent(kind, content["object"])
