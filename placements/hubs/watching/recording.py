"""Recordings of a live hub: what its lists and watches deliver, as JSON lines without secrets.

A line is `{"at", "stream", "type", "object"}`, with the objects as the mirror stores them (`trimming`).
"""

import gzip
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from clusters.drivers.base import DriverUnavailable
from clusters.models import Hub
from fleetui.errors import FleetError
from placements.hubs.connections.connection import (
    HubAccess,
    HubTarget,
)
from placements.hubs.connections.discovery import discover
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.kinds.base import HubApi, StreamKind
from placements.hubs.trimming import unpack
from placements.hubs.watching.runner import (
    LISTS_AT_ONCE,
    REQUEST_SECONDS,
    STOP_SECONDS,
    Place,
    places_of,
)
from placements.hubs.watching.stream import StreamItem, StreamPace, StreamReader
from placements.hubs.watching.watch_reader import EventType

_CHECK_SECONDS = 0.5
_GENERATED = re.compile(r"(Snapshot|Binding|ApprovalRequest|Event|Work)$")
"""Kinds whose names controllers make of the names of other objects; their form stays."""
_KEPT = frozenset(
    {"default", "fleet-system", "kube-system", "kube-public", "kube-node-lease"}
)
_NOT_NAMES = frozenset(
    {"apiVersion", "kind", "group", "version", "uid", "resourceVersion", "type"}
)
_CUTS = (26, 27)
"""So many characters of a placement and of a cluster are in the name of a binding."""
_WORD = re.compile(r"[a-z0-9]+(?:[-.]+[a-z0-9]+)*")


class NotRecordedError(FleetError):
    """A hub cannot be recorded now."""


@dataclass
class Recording:
    """Takes what the streams of a hub deliver, and writes each change of an object as one line."""

    file: IO[bytes]
    places: Mapping[int, Place]
    events: Counter[str] = field(default_factory=Counter)
    """Lines by stream."""
    _known: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """The metadata of the objects of each stream by UID, which a list is compared with."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    def put(self, item: StreamItem) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            known = self._known.setdefault(item.stream, {})
            if item.record:
                content, uid = unpack(item.record.packed), item.record.uid
                before = known.get(uid)
                keys = ("namespace", "name", "uid", "resourceVersion")
                metadata = {
                    key: content["metadata"][key]
                    for key in keys
                    if key in content["metadata"]
                }
                known[uid] = {
                    "apiVersion": content["apiVersion"],
                    "kind": content["kind"],
                    "metadata": metadata,
                }
                if before != known[uid]:
                    self._write(
                        item.stream,
                        EventType.MODIFIED if before else EventType.ADDED,
                        content,
                    )
            gone = [item.removal.uid] if item.removal else []
            if item.listed_uids is not None:
                gone = [uid for uid in known if uid not in item.listed_uids]
            for uid in gone:
                if content := known.pop(uid, {}):
                    self._write(item.stream, EventType.DELETED, content)
        return True

    def close(self) -> None:
        """Refuse further items, also from a stream that is still in a read."""
        with self._lock:
            self._is_closed = True

    def _write(self, stream: int, kind: EventType, content: Mapping[str, Any]) -> None:
        resource = self.places[stream].kind.resource
        at = datetime.now(UTC).isoformat()
        line = {"at": at, "stream": resource, "type": str(kind), "object": content}
        self.file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self.events[resource] += 1


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """How many events of each stream were recorded, and what failed."""

    events: Mapping[str, int]
    errors: Mapping[str, str]


def record_hub(
    hub: Hub,
    target: Path,
    stopped: threading.Event,
    *,
    seconds: float,
    is_anonymous: bool = False,
    pace: StreamPace | None = None,
) -> RecordingReport:
    """Record a hub into a new file (.gz: compressed) until its time is over or it is stopped.

    The hub is only read. Raise NotRecordedError, and FileExistsError where there is such a file.
    """
    if hub.is_paused:
        raise NotRecordedError(f"hub {hub.name} is paused: no requests are sent")
    aim, api = HubTarget.of(hub), HUB_KINDS[hub.kind]
    access = HubAccess(wants_reading=lambda: None, wants_discovery=lambda: None)
    try:
        versions = _served_versions(api, access, aim)
        places = dict(enumerate(places_of(list(versions), hub.namespaces)))
        # Readable by this user alone, as names and addresses of a fleet are not public.
        target.touch(mode=0o600, exist_ok=False)
        with TemporaryFile() as spool:
            recording = Recording(spool, places)
            read = partial(
                StreamReader, pace=pace, lists=threading.Semaphore(LISTS_AT_ONCE)
            )
            streams = [
                read(
                    number,
                    api,
                    one.kind,
                    versions[one.kind],
                    one.namespace,
                    access,
                    recording,
                )
                for number, one in places.items()
            ]
            threads = [threading.Thread(target=one.run, daemon=True) for one in streams]
            for thread in threads:
                thread.start()
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0 and not stopped.wait(
                min(left, _CHECK_SECONDS)
            ):
                if access.needs_reading and access.use(aim, is_changed=False):
                    for one in streams:
                        one.reconnect()
            errors = {
                one.kind.resource: one.status.error
                for one in streams
                if one.status.error
            }
            for one in streams:
                one.stop()
            until = time.monotonic() + STOP_SECONDS
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            recording.close()
            _copy(spool, target, is_anonymous=is_anonymous)
            return RecordingReport(dict(recording.events), errors)
    finally:
        access.close()


def _served_versions(
    api: HubApi, access: HubAccess, aim: HubTarget
) -> Mapping[StreamKind, str]:
    """Connect, and return the kinds that the hub serves with their versions. Raise NotRecordedError."""
    if (client := access.use(aim, is_changed=True)) is None:
        raise NotRecordedError(f"hub {aim.name}: {access.problem}")
    try:
        discovery = discover(
            api, client, seconds=REQUEST_SECONDS, monotonic=time.monotonic
        )
    except DriverUnavailable as error:
        raise NotRecordedError(f"hub {aim.name}: {error}") from error
    if discovery.unsuitable:
        raise NotRecordedError(f"hub {aim.name}: {discovery.unsuitable}")
    return {kind: version for kind, version in discovery.versions.items() if version}


def _copy(spool: IO[bytes], target: Path, *, is_anonymous: bool) -> None:
    spool.seek(0)
    names: dict[str, str] = {}
    if is_anonymous:
        for line in spool:
            collect_names(json.loads(line)["object"], names)
        spool.seek(0)
    replaced = with_cuts(names)
    with (
        gzip.open(target, "wb") if target.suffix == ".gz" else target.open("wb") as file
    ):
        for line in spool:
            if is_anonymous:
                event = json.loads(line)
                event["object"] = without_names(event["object"], replaced)
                line = json.dumps(event, separators=(",", ":")).encode() + b"\n"  # noqa: PLW2901
            file.write(line)


def collect_names(manifest: Mapping[str, Any], names: dict[str, str]) -> None:
    """Add the names of an object, of its namespace and of what it refers to, each with its replacement."""
    for one in _mappings(manifest):
        metadata = one["metadata"] if isinstance(one.get("metadata"), Mapping) else one
        kind = str(one.get("kind") or "")
        pairs = [("namespace", metadata.get("namespace"))]
        if kind and not _GENERATED.search(kind):
            pairs.append((kind.lower(), metadata.get("name")))
        if isinstance(one.get("namespaces"), Mapping):
            pairs += [("namespace", name) for name in one["namespaces"]]
        for prefix, name in pairs:
            is_kept = (
                not isinstance(name, str)
                or name in _KEPT
                or name.startswith("fleet-member-")
            )
            if name and not is_kept and name not in names:
                names[name] = f"{prefix}-{len(names) + 1}"


def with_cuts(names: Mapping[str, str]) -> Mapping[str, str]:
    """Return names with their first characters as bindings have them; a whole name comes before a cut one."""
    return {
        name[:cut].rstrip("-."): new for name, new in names.items() for cut in _CUTS
    } | dict(names)


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
    for inner in (
        value.values()
        if isinstance(value, Mapping)
        else value
        if isinstance(value, list)
        else ()
    ):
        yield from _mappings(inner)


def without_names(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """Return a value whose texts have the replacements of names, also where they are parts of other names."""
    if isinstance(value, Mapping):
        has_names = key == "namespaces"
        return {
            names.get(inner, inner) if has_names else inner: without_names(
                one, names, inner
            )
            for inner, one in value.items()
        }
    if isinstance(value, list):
        return [without_names(one, names) for one in value]
    if not isinstance(value, str) or key in _NOT_NAMES:
        return value

    def replaced(match: re.Match[str]) -> str:
        parts = re.split(r"([-.]+)", match[0])
        done, start = [], 0
        while start < len(parts):
            for end in range(len(parts), start, -2):
                if replacement := names.get("".join(parts[start:end])):
                    done.append(replacement)
                    break
            else:
                end = start + 1
                done.append(parts[start])
            done += parts[end : end + 1]
            start = end + 1
        return "".join(done)

    return _WORD.sub(replaced, value)
