"""Writes what the streams of one hub deliver: batches, heartbeats, changes of bindings (9.1)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import F

from clusters.models import BindingChange, Hub, HubStream, MirroredObject
from fleetui.apimachinery.grouping import grouped
from fleetui.bulk import batched
from fleetui.hub_scope import in_hub
from placements.hubs.kinds.base import HubApi, StreamKind, moment_of
from placements.hubs.trimming import MirrorRecord, short_digest
from placements.hubs.watching.states import StreamStatus
from placements.hubs.watching.stream import StreamItem

GONE = "Gone"
FLUSH_SECONDS = 15.0
BATCH = 500
_QUIET_COLUMNS = (
    "manifest",
    "size",
    "resource_version",
    "generation",
    "heartbeat_at",
    "seen_at",
)
_COLUMNS = (
    *_QUIET_COLUMNS,
    "stream",
    "uid",
    "owner",
    "cluster",
    "number",
    "is_latest",
    "is_deleting",
    "digest",
    "changed_at",
    "is_dirty",
)
_STORED = ("pk", "uid", "resource_version", "digest", "owner", "cluster")
_COUNTERS = ("events", "bytes", "relists", "skipped", "failures")
Key = tuple[str, str]
"""Namespace and name."""


class LeaseLost(Exception):
    """Another watcher has the hub."""


class StoredObject(NamedTuple):
    """What decides whether a stored object changes, and whose binding it is."""

    pk: int
    uid: str
    resource_version: str
    digest: str
    owner: str
    cluster: str

    def gone(self, resource_version: str, now: datetime) -> BindingChange:
        return BindingChange(
            owner=self.owner,
            cluster=self.cluster,
            uid=self.uid,
            state=GONE,
            resource_version=resource_version or self.resource_version,
            seen_at=now,
        )


@dataclass(slots=True)
class MirrorStream:
    """A stream in the mirror: its row, and its position as far as it is read.

    `known` has the newest version of the objects that have heartbeats, `quiet` those whose heartbeat is not
    written yet.
    """

    pk: int
    kind: StreamKind
    position: str
    is_binding: bool
    quiet: dict[Key, MirrorRecord] = field(default_factory=dict)
    known: dict[Key, StoredObject] = field(default_factory=dict)
    counted: tuple[datetime, int] | None = None
    """The counter of events at the last flush."""

    def digest(self, record: MirrorRecord) -> str:
        if self.is_binding:
            return short_digest(record.columns.state, record.columns.policy_snapshot)
        return record.digest

    def take_quiet(self, item: StreamItem) -> bool:
        """Return whether it is a bookmark, or a heartbeat of a stored object, and keep it for the flush."""
        record = item.record
        if record is None:
            return item.removal is None and item.listed_uids is None
        known = self.known.get(record.key)
        if known is None or (known.uid, known.digest) != (record.uid, record.digest):
            return False
        version = record.resource_version
        if item.is_from_list or not is_older(version, known.resource_version):
            self.known[record.key] = known._replace(resource_version=version)
            self.quiet[record.key] = record
        return True

    def loud(self, items: Iterable[StreamItem]) -> list[StreamItem]:
        """Return what is written now: what is not quiet, and all that follows it of the same object."""
        loud: list[StreamItem] = []
        keys: set[Key | None] = set()
        for item in items:
            if item.key in keys or not self.take_quiet(item):
                loud.append(item)
                keys.add(item.key)
        return loud

    def drop(self, key: Key) -> None:
        self.quiet.pop(key, None)
        self.known.pop(key, None)

    def counters(
        self,
        status: StreamStatus | None,
        now: datetime,
        monotonic: float,
    ) -> HubStream:
        """Return the row with what each flush writes; events per minute are those since the last one."""
        status = status or StreamStatus(self.kind)
        since, before = self.counted or (now, status.events)
        seconds = (now - since).total_seconds()
        self.counted = now, status.events
        row = HubStream(pk=self.pk, resource_version=self.position)
        if seconds > 0 and status.events > before:
            row.events_per_minute = round(60 * (status.events - before) / seconds, 1)
        if status.heard_at is not None:
            row.heard_at = now - timedelta(seconds=monotonic - status.heard_at)
        for name in _COUNTERS:
            setattr(row, name, getattr(status, name))
        return row


@dataclass(slots=True)
class _Pending:
    """The changes of one stream within a batch, each key once."""

    stored: dict[Key, StoredObject]
    upserts: dict[Key, MirrorRecord] = field(default_factory=dict)
    deletes: list[int] = field(default_factory=list)
    changes: list[BindingChange] = field(default_factory=list)
    added: int = 0


class HubMirror:
    """The writer of one hub, for one thread; each transaction checks that this process has the lease."""

    def __init__(
        self,
        hub: int,
        api: HubApi,
        lease_token: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.hub = hub
        self._api = api
        self._token = lease_token
        self._clock = clock
        self.streams: dict[int, MirrorStream] = {}

    def add(self, row: HubStream, kind: StreamKind) -> None:
        is_binding = (
            kind.kind in self._api.binding_kinds and kind.group in self._api.groups
        )
        stream = MirrorStream(row.pk, kind, row.resource_version, is_binding)
        # Another thread may go through them.
        self.streams = {**self.streams, row.pk: stream}

    def write(self, items: Sequence[StreamItem]) -> bool:
        """Write a batch in one transaction; return whether the projection has work. Raise LeaseLost."""
        batches = grouped(
            (item.stream, item) for item in items if item.stream in self.streams
        )
        # The last one of a stream counts.
        positions = {item.stream: item.position for item in items if item.position}
        loud = {pk: self.streams[pk].loud(batch) for pk, batch in batches.items()}
        now = self._clock()
        is_dirty = False
        is_written = False
        try:
            if any(loud.values()):
                with in_hub(self.hub), transaction.atomic():
                    self._check_lease()
                    for pk, batch in loud.items():
                        stream = self.streams[pk]
                        position = positions.get(pk, "")
                        is_dirty |= self._write_stream(stream, batch, position, now)
            is_written = True
        finally:
            if not is_written:  # so that the batch can be written again
                for pk in loud:
                    self.streams[pk].known.clear()
        for pk in positions.keys() & batches.keys():
            self.streams[pk].position = positions[pk]
        return is_dirty

    def _check_lease(self) -> None:
        rows = Hub.objects.select_for_update(no_key=True).filter(
            pk=self.hub, lease_token=self._token
        )
        if not rows.values_list("pk", flat=True).first():
            raise LeaseLost

    def _write_stream(
        self,
        stream: MirrorStream,
        items: list[StreamItem],
        position: str,
        now: datetime,
    ) -> bool:
        """Write the items of one stream; a complete list divides them, since it removes what it lacks."""
        if not items:
            return False
        values: dict[str, object] = {}
        is_dirty = False
        start = 0
        for end, item in enumerate(items):
            if item.listed_uids is None:
                continue
            is_dirty |= self._write_objects(stream, items[start:end], now)
            is_dirty |= self._remove_missing(stream, item.listed_uids, now)
            start = end + 1
            values["listed_at"] = now
        is_dirty |= self._write_objects(stream, items[start:], now)
        # What is quiet and not written would be lost with this process.
        if position and not stream.quiet:
            values["resource_version"] = position
        if values:
            HubStream.objects.filter(pk=stream.pk).update(**values)
        return is_dirty

    def _write_objects(
        self,
        stream: MirrorStream,
        items: Sequence[StreamItem],
        now: datetime,
    ) -> bool:
        pending = _Pending(self._stored(stream, items))
        for item in items:
            if item.record:
                self._put(stream, pending, item.record, now, item.is_from_list)
            elif removal := item.removal:
                key = removal.namespace, removal.name
                stored = pending.stored.get(key)
                if stored and stored.uid == removal.uid:
                    self._forget(stream, pending, key, now, removal.resource_version)
        rows = [self._row(stream, record, now) for record in pending.upserts.values()]
        is_changed = bool(rows or pending.deletes)
        values: dict[str, object] = {"object_count": F("object_count") + pending.added}
        if pending.deletes:
            MirroredObject.objects.filter(pk__in=pending.deletes).delete()
            values["has_removals"] = True
        if is_changed:
            HubStream.objects.filter(pk=stream.pk).update(**values)
        self._upsert(rows, _COLUMNS)
        BindingChange.objects.bulk_create(pending.changes)
        return is_changed

    def _upsert(self, rows: Sequence[MirroredObject], columns: Sequence[str]) -> None:
        MirroredObject.objects.bulk_create(
            rows,
            batch_size=BATCH,
            update_conflicts=True,
            unique_fields=("hub", "group", "kind", "namespace", "name"),
            update_fields=columns,
        )

    def _stored(
        self, stream: MirrorStream, items: Iterable[StreamItem]
    ) -> dict[Key, StoredObject]:
        keys = {item.key for item in items if item.key}
        if not keys:
            return {}
        rows = MirroredObject.objects.filter(
            group=stream.kind.group,
            kind=stream.kind.kind,
            name__in={name for _, name in keys},
            namespace__in={namespace for namespace, _ in keys},
        )
        objects = {
            (namespace, name): StoredObject(*values)
            for namespace, name, *values in rows.values_list(
                "namespace", "name", *_STORED
            )
        }
        newest = {key: stream.known[key] for key in objects if key in stream.known}
        return {
            key: stored._replace(
                resource_version=newest.get(key, stored).resource_version
            )
            for key, stored in objects.items()
        }

    def _put(
        self,
        stream: MirrorStream,
        pending: _Pending,
        record: MirrorRecord,
        now: datetime,
        is_from_list: bool,
    ) -> None:
        key = record.key
        stored = pending.stored.get(record.key)
        if stored and stored.uid != record.uid:
            self._forget(stream, pending, key, now)
            stored = None
        version = record.resource_version
        digest = stream.digest(record)
        if stored:
            if stored.resource_version == version:
                return
            if not is_from_list and is_older(version, stored.resource_version):
                return
        else:
            pending.added += 1
        columns = record.columns
        if stream.is_binding and (stored is None or stored.digest != digest):
            change = BindingChange(
                owner=columns.owner,
                cluster=columns.cluster,
                uid=record.uid,
                state=columns.state,
                policy_snapshot=columns.policy_snapshot,
                resource_version=version,
                seen_at=now,
            )
            pending.changes.append(change)
        pk = stored.pk if stored else 0
        pending.stored[key] = StoredObject(
            pk, record.uid, version, digest, columns.owner, columns.cluster
        )
        pending.upserts[key] = record
        stream.quiet.pop(key, None)
        if record.digest:
            stream.known[key] = pending.stored[key]

    def _forget(
        self,
        stream: MirrorStream,
        pending: _Pending,
        key: Key,
        now: datetime,
        resource_version: str = "",
    ) -> None:
        """Remove an object that is stored or was about to be."""
        stored = pending.stored.pop(key)
        pending.upserts.pop(key, None)
        pending.added -= 1
        stream.drop(key)
        if stored.pk:
            pending.deletes.append(stored.pk)
        if stream.is_binding:
            pending.changes.append(stored.gone(resource_version, now))

    def _remove_missing(
        self,
        stream: MirrorStream,
        uids: frozenset[str],
        now: datetime,
    ) -> bool:
        """Remove what a complete list of the stream does not contain; return whether anything was."""
        rows = MirroredObject.objects.filter(stream=stream.pk)
        identities = rows.values_list("pk", "uid").iterator()
        gone = [pk for pk, uid in identities if uid not in uids]
        for part in batched(gone, size=BATCH):
            chosen = MirroredObject.objects.filter(pk__in=part)
            changes = []
            for namespace, name, *values in chosen.values_list(
                "namespace", "name", *_STORED
            ):
                stream.drop((namespace, name))
                changes.append(StoredObject(*values).gone("", now))
            if stream.is_binding:
                BindingChange.objects.bulk_create(changes)
            chosen.delete()
        columns: dict[str, object] = {"object_count": len(uids)}
        if gone:
            columns["has_removals"] = True
        HubStream.objects.filter(pk=stream.pk).update(**columns)
        return bool(gone)

    def _row(
        self,
        stream: MirrorStream,
        record: MirrorRecord,
        now: datetime,
    ) -> MirroredObject:
        columns = record.columns
        return MirroredObject(
            hub_id=self.hub,
            stream_id=stream.pk,
            group=stream.kind.group,
            kind=stream.kind.kind,
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            resource_version=record.resource_version,
            generation=record.generation,
            owner=columns.owner,
            cluster=columns.cluster,
            number=columns.number,
            is_latest=columns.is_latest,
            is_deleting=record.is_deleting,
            manifest=record.packed,
            size=record.size,
            digest=stream.digest(record),
            heartbeat_at=moment_of(columns.heartbeat),
            seen_at=now,
            changed_at=now,
            is_dirty=True,
        )

    def flush(
        self, statuses: Mapping[int, StreamStatus], *, monotonic: float = 0.0
    ) -> None:
        """Write heartbeats, positions and counters: one statement for each. Raise LeaseLost."""
        now = self._clock()
        with in_hub(self.hub), transaction.atomic():
            self._check_lease()
            quiet = [
                self._row(stream, record, now)
                for stream in self.streams.values()
                for record in stream.quiet.values()
            ]
            self._upsert(quiet, _QUIET_COLUMNS)
            rows = [
                stream.counters(statuses.get(pk), now, monotonic)
                for pk, stream in self.streams.items()
            ]
            HubStream.objects.bulk_update(
                rows, ("resource_version", "heard_at", "events_per_minute", *_COUNTERS)
            )
        for stream in self.streams.values():
            stream.quiet.clear()


def is_older(one: str, other: str) -> bool:
    """Return whether both are decimal numbers and the first is lower; anything else cannot be compared."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
