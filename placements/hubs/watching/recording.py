"""Recordings of a live hub: what its lists and watches deliver, as JSON lines without secrets.

A line is `{"at", "stream", "type", "object"}`, with the objects as the mirror stores them (`trimming`).
"""

import gzip
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from clusters.models import Hub, HubStream
from fleetui.apimachinery.model import mapping_at
from fleetui.errors import FleetError
from placements.hubs.connections.connection import HubTarget
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.kinds.base import text_of
from placements.hubs.trimming import unpack
from placements.hubs.watching.mirror import HubMirror
from placements.hubs.watching.runner import HubRunner
from placements.hubs.watching.stream import StreamItem, StreamPace
from placements.hubs.watching.watch_reader import EventType

Content = Mapping[str, Any]
_CHECK_SECONDS = 0.05
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
    resources: dict[int, str] = field(default_factory=dict)
    """The resource of each stream by its number."""
    events: Counter[str] = field(default_factory=Counter)
    """Lines by resource."""
    _known: dict[int, dict[str, Content]] = field(default_factory=dict)
    """The metadata of the objects of each stream by UID, which a list is compared with."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_closed: bool = False

    def open(self, _hub: int) -> None:
        """Be open from the start, as the queue of a watcher is for its hubs."""

    def put(self, _hub: int, item: StreamItem) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            known = self._known.setdefault(item.stream, {})
            if item.record:
                content = unpack(item.record.packed)
                uid = item.record.uid
                before = known.get(uid)
                known[uid] = identity_in(content)
                if before != known[uid]:
                    kind = EventType.MODIFIED if before else EventType.ADDED
                    self._write(item.stream, kind, content)
            gone = [item.removal.uid] if item.removal else []
            if item.listed_uids is not None:
                gone = [uid for uid in known if uid not in item.listed_uids]
            for uid in gone:
                if identity := known.pop(uid, {}):
                    self._write(item.stream, EventType.DELETED, identity)
        return True

    def close(self) -> None:
        """Refuse further items, also from a stream that is still in a read."""
        with self._lock:
            self._is_closed = True

    def _write(
        self,
        stream: int,
        kind: EventType,
        content: Content,
    ) -> None:
        resource = self.resources[stream]
        at = datetime.now(UTC).isoformat()
        line = {"at": at, "stream": resource, "type": str(kind), "object": content}
        self.file.write(_encoded(line))
        self.events[resource] += 1


def identity_in(content: Content) -> dict[str, Any]:
    metadata = content["metadata"]
    keys = ("namespace", "name", "uid", "resourceVersion")
    kept = {key: metadata[key] for key in keys if key in metadata}
    return {**{key: content[key] for key in ("apiVersion", "kind")}, "metadata": kept}


@dataclass(frozen=True, slots=True)
class RecordingReport:
    """How many events of each resource were recorded, and what failed."""

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
    aim = HubTarget.of(hub)
    api = HUB_KINDS[hub.kind]
    with TemporaryFile() as spool:
        recording = Recording(spool)
        runner = HubRunner(aim, api, HubMirror(hub.pk, api, ""), recording, pace=pace)
        runner.start()
        try:
            while runner.is_undecided and not stopped.wait(_CHECK_SECONDS):
                pass
            if runner.discovery is None or runner.discovery.unsuitable:
                raise NotRecordedError(f"hub {hub.name}: {runner.condition().reason}")
            # Readable by this user alone, as names and addresses of a fleet are not public.
            target.touch(mode=0o600, exist_ok=False)
            places = runner.places(hub.namespaces)
            for number, (place, version) in enumerate(places.items()):
                recording.resources[number] = place.kind.resource
                runner.run_stream(place, HubStream(pk=number, version=version))
            stopped.wait(seconds)
            statuses = list(runner.statuses.values())
        finally:
            runner.stop()
            runner.join()
            recording.close()
        _copy(spool, target, is_anonymous=is_anonymous)
    errors = {status.kind.resource: status.error for status in statuses if status.error}
    return RecordingReport(dict(recording.events), errors)


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
                line = _encoded(event)  # noqa: PLW2901
            file.write(line)


def _encoded(event: Content) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def collect_names(manifest: Mapping[str, Any], names: dict[str, str]) -> None:
    """Add the names of an object, of its namespace and of what it refers to, each with its replacement."""
    for mapping in _mappings(manifest):
        metadata = mapping_at(mapping, "metadata") or mapping
        kind = text_of(mapping.get("kind"))
        pairs = [("namespace", metadata.get("namespace"))]
        if kind and not _GENERATED.search(kind):
            pairs.append((kind.lower(), metadata.get("name")))
        pairs += [("namespace", name) for name in mapping_at(mapping, "namespaces")]
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
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _mappings(inner)


def without_names(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """Return a value whose texts have the replacements of names, also where they are parts of other names."""
    if isinstance(value, Mapping):
        renamed = names if key == "namespaces" else {}
        return {
            renamed.get(inner, inner): without_names(one, names, inner)
            for inner, one in value.items()
        }
    if isinstance(value, list):
        return [without_names(one, names) for one in value]
    if not isinstance(value, str) or key in _NOT_NAMES:
        return value
    return _WORD.sub(partial(replace_names, names), value)


def replace_names(names: Mapping[str, str], word: re.Match[str]) -> str:
    """Return a word with its longest parts that are names replaced."""
    parts = re.split(r"([-.]+)", word[0])
    done = []
    start = 0
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
