"""Writes what the streams of one hub deliver: batches, quiet heartbeats, changes of bindings (9.1)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import NamedTuple

from django.db import transaction
from django.utils.dateparse import parse_datetime

from clusters.models import BindingChange, Hub, HubStream, MirroredObject
from fleetui.hub_scope import in_hub
from placements.hubs.kinds.base import HubApi, StreamKind
from placements.hubs.trimming import MirrorRecord, short_digest
from placements.hubs.watching.stream import StreamItem

GONE = "Gone"
FLUSH_SECONDS = 15.0
RATE_SECONDS = 60.0
BATCH = 500
_KEY = ("hub", "group", "kind", "namespace", "name")
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


class LeaseLost(Exception):
    """Another watcher has the hub."""


class StoredObject(NamedTuple):
    """What decides whether a stored object changes."""

    pk: int
    uid: str
    resource_version: str
    digest: str


@dataclass(slots=True)
class StreamFacts:
    """What is written of a stream from time to time: set by its thread, read by the one that writes."""

    heard_at: datetime | None = None
    events: int = 0
    bytes: int = 0
    relists: int = 0
    skipped: int = 0
    failures: int = 0


@dataclass(slots=True)
class MirrorStream:
    """A stream in the mirror: its row, and its position as far as it is written.

    `known` has what is stored of objects that have heartbeats, `quiet` those whose heartbeat is not written.
    """

    pk: int
    kind: StreamKind
    position: str = ""
    is_listed: bool = False
    objects: int = 0
    quiet: dict[tuple[str, str], MirrorRecord] = field(default_factory=dict)
    known: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    counted: deque[tuple[datetime, int]] = field(default_factory=deque)
    """The counters of events of the last minute, oldest first."""

    def events_per_minute(self, events: int, now: datetime) -> float:
        """Return the average since the oldest counter that is kept; `events` is the present one."""
        while (
            len(self.counted) > 1
            and (now - self.counted[1][0]).total_seconds() >= RATE_SECONDS
        ):
            self.counted.popleft()
        if (
            self.counted and events < self.counted[-1][1]
        ):  # the stream was started again
            self.counted.clear()
        self.counted.append((now, events))
        since, before = self.counted[0]
        seconds = (now - since).total_seconds()
        return round(60 * (events - before) / seconds, 1) if seconds > 0 else 0.0


@dataclass(slots=True)
class _Pending:
    """The changes of one stream within a batch, each key once."""

    stored: dict[tuple[str, str], StoredObject]
    upserts: dict[tuple[str, str], MirrorRecord] = field(default_factory=dict)
    deletes: list[int] = field(default_factory=list)
    changes: list[BindingChange] = field(default_factory=list)


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
        self.hub, self._api, self._token, self._clock = hub, api, lease_token, clock
        self.streams: dict[int, MirrorStream] = {}
        self.batches = 0

    def add(self, row: HubStream, kind: StreamKind) -> MirrorStream:
        stream = MirrorStream(
            row.pk, kind, row.resource_version, bool(row.listed_at), row.object_count
        )
        # Another thread may go through them.
        self.streams = {**self.streams, row.pk: stream}
        return stream

    def write(self, items: Sequence[StreamItem]) -> bool:
        """Write a batch in one transaction; return whether the projection has work. Raise LeaseLost."""
        items = self._take_quiet(items)
        if not items:
            return False
        now, is_dirty = self._clock(), False
        before = {
            pk: (one.objects, dict(one.quiet)) for pk, one in self.streams.items()
        }
        is_written = False
        try:
            with in_hub(self.hub), transaction.atomic():
                self._check_lease()
                for stream, group in self._by_stream(items):
                    is_dirty |= self._write_stream(stream, group, now)
            is_written = True
        finally:
            if not is_written:  # so that the batch can be written again
                for pk, (objects, quiet) in before.items():
                    self.streams[pk].objects, self.streams[pk].quiet = objects, quiet
                    self.streams[pk].known.clear()
        self.batches += 1
        for stream, group in self._by_stream(items):
            if any(one.listed_uids is not None for one in group):
                stream.is_listed = True
        return is_dirty

    def _by_stream(
        self, items: Sequence[StreamItem]
    ) -> Iterator[tuple[MirrorStream, list[StreamItem]]]:
        by_stream = sorted(
            items, key=lambda one: one.stream
        )  # stable: in order within a stream
        for pk, group in groupby(by_stream, key=lambda one: one.stream):
            if stream := self.streams.get(pk):
                yield stream, list(group)

    def _take_quiet(self, items: Sequence[StreamItem]) -> list[StreamItem]:
        """Remember bookmarks and heartbeats, which the next flush writes; return what needs the database now.

        A stream with anything else in the batch needs it for all of its items, so that they stay in order.
        """
        rest: list[StreamItem] = []
        for stream, group in self._by_stream(items):
            if not all(is_bookmark(one) or is_heartbeat(stream, one) for one in group):
                rest += group
                continue
            for one in group:
                stream.position = one.position
                if one.record:
                    stream.quiet[one.record.key] = one.record
        return rest

    def _check_lease(self) -> None:
        rows = Hub.objects.select_for_update(no_key=True).filter(
            pk=self.hub, lease_token=self._token
        )
        if not rows.values_list("pk", flat=True).first():
            raise LeaseLost

    def _write_stream(
        self, stream: MirrorStream, items: list[StreamItem], now: datetime
    ) -> bool:
        """Write the items of one stream; a complete list divides them, since it removes what it lacks."""
        is_dirty, start = False, 0
        for end, item in enumerate(items):
            if item.listed_uids is None:
                continue
            is_dirty |= self._write_objects(stream, items[start:end], now)
            is_dirty |= self._remove_missing(stream, item.listed_uids, now)
            start = end + 1
        is_dirty |= self._write_objects(stream, items[start:], now)
        position = next((one.position for one in reversed(items) if one.position), "")
        has_list = start > 0
        if position:
            stream.position = position
        values: dict[str, object] = {"object_count": stream.objects}
        if has_list:
            values["listed_at"] = now
        if (
            position and not stream.quiet
        ):  # what is quiet and not written would be lost with this process
            values["resource_version"] = position
        HubStream.objects.filter(pk=stream.pk).update(**values)
        return is_dirty

    def _write_objects(
        self, stream: MirrorStream, items: Sequence[StreamItem], now: datetime
    ) -> bool:
        if not items:
            return False
        pending = _Pending(self._stored(stream, items))
        for item in items:
            if removal := item.removal:
                key = removal.namespace, removal.name
                stored = pending.stored.get(key)
                if stored and stored.uid == removal.uid:
                    self._forget(
                        stream,
                        pending,
                        key,
                        now,
                        resource_version=removal.resource_version,
                    )
            elif item.record:
                self._put(
                    stream, pending, item.record, now, is_from_list=item.is_from_list
                )
        if pending.deletes:
            MirroredObject.objects.filter(pk__in=pending.deletes).delete()
            HubStream.objects.filter(pk=stream.pk, has_removals=False).update(
                has_removals=True
            )
        rows = [self._row(stream, record, now) for record in pending.upserts.values()]
        MirroredObject.objects.bulk_create(
            rows,
            batch_size=BATCH,
            update_conflicts=True,
            unique_fields=_KEY,
            update_fields=_COLUMNS,
        )
        BindingChange.objects.bulk_create(pending.changes)
        return bool(rows or pending.deletes)

    def _stored(
        self, stream: MirrorStream, items: Iterable[StreamItem]
    ) -> dict[tuple[str, str], StoredObject]:
        keys = {
            (one.namespace, one.name)
            for item in items
            if (one := item.record or item.removal)
        }
        rows = MirroredObject.objects.filter(
            group=stream.kind.group,
            kind=stream.kind.kind,
            name__in={name for _, name in keys},
        )
        if stream.kind.is_namespaced:
            rows = rows.filter(namespace__in={namespace for namespace, _ in keys})
        columns = ("namespace", "name", "pk", "uid", "resource_version", "digest")
        objects = {
            (namespace, name): StoredObject(*values)
            for namespace, name, *values in rows.values_list(*columns)
        }
        for key, record in stream.quiet.items():
            if key in objects:
                objects[key] = objects[key]._replace(
                    resource_version=record.resource_version
                )
        if not self._is_binding(stream):  # which have a digest of another kind
            stream.known |= {
                key: stored for key, stored in objects.items() if stored.digest
            }
        return objects

    def _put(
        self,
        stream: MirrorStream,
        pending: _Pending,
        record: MirrorRecord,
        now: datetime,
        *,
        is_from_list: bool,
    ) -> None:
        key, stored = record.key, pending.stored.get(record.key)
        digest = self._digest(stream, record)
        if stored and stored.uid != record.uid:
            self._forget(stream, pending, key, now)
            stored = None
        if stored:
            if stored.resource_version == record.resource_version:
                return
            if not is_from_list and is_older(
                record.resource_version, stored.resource_version
            ):
                return
        if self._is_binding(stream) and (stored is None or stored.digest != digest):
            pending.changes.append(binding_change(record, now))
        is_quiet = (
            bool(record.digest) and stored is not None and stored.digest == digest
        )
        if stored is None:
            stream.objects += 1
        pending.stored[key] = StoredObject(
            stored.pk if stored else 0, record.uid, record.resource_version, digest
        )
        if is_quiet and key not in pending.upserts:
            stream.quiet[key] = record
        else:
            stream.quiet.pop(key, None)
            pending.upserts[key] = record
        if record.digest:
            stream.known[key] = pending.stored[key]

    def _forget(
        self,
        stream: MirrorStream,
        pending: _Pending,
        key: tuple[str, str],
        now: datetime,
        *,
        resource_version: str = "",
    ) -> None:
        """Remove an object that is stored or was about to be."""
        stored = pending.stored.pop(key)
        written = pending.upserts.pop(key, None)
        stream.quiet.pop(key, None)
        stream.known.pop(key, None)
        stream.objects -= 1
        if stored.pk:
            pending.deletes.append(stored.pk)
        if not self._is_binding(stream):
            return
        if written:
            change = binding_change(written, now)
        else:
            columns = ("owner", "cluster", "uid", "resource_version")
            values = MirroredObject.objects.filter(pk=stored.pk).values(*columns).get()
            change = BindingChange(**values, seen_at=now)
        change.state, change.policy_snapshot = GONE, ""
        change.resource_version = resource_version or change.resource_version
        pending.changes.append(change)

    def _remove_missing(
        self, stream: MirrorStream, uids: frozenset[str], now: datetime
    ) -> bool:
        """Remove what a complete list of the stream does not contain; return whether anything was."""
        rows = MirroredObject.objects.filter(stream=stream.pk)
        gone = [
            pk
            for pk, uid in rows.values_list("pk", "uid").iterator()
            if uid not in uids
        ]
        for start in range(0, len(gone), BATCH):
            chosen = MirroredObject.objects.filter(pk__in=gone[start : start + BATCH])
            columns = (
                "owner",
                "cluster",
                "uid",
                "resource_version",
                "namespace",
                "name",
            )
            removed = list(chosen.values(*columns))
            for one in removed:
                key = one.pop("namespace"), one.pop("name")
                stream.quiet.pop(key, None)
                stream.known.pop(key, None)
            if self._is_binding(stream):
                BindingChange.objects.bulk_create(
                    BindingChange(**one, state=GONE, seen_at=now) for one in removed
                )
            chosen.delete()
        stream.objects = len(uids)
        if gone:
            HubStream.objects.filter(pk=stream.pk).update(has_removals=True)
        return bool(gone)

    def _is_binding(self, stream: MirrorStream) -> bool:
        return (
            stream.kind.kind in self._api.binding_kinds
            and stream.kind.group in self._api.groups
        )

    def _digest(self, stream: MirrorStream, record: MirrorRecord) -> str:
        if not self._is_binding(stream):
            return record.digest
        return short_digest(record.columns.state, record.columns.policy_snapshot)

    def _row(
        self, stream: MirrorStream, record: MirrorRecord, now: datetime
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
            digest=self._digest(stream, record),
            heartbeat_at=moment_of(columns.heartbeat),
            seen_at=now,
            changed_at=now,
            is_dirty=True,
        )

    def flush(self, facts: Mapping[int, StreamFacts]) -> None:
        """Write quiet heartbeats, positions and counters: one statement for each. Raise LeaseLost."""
        now = self._clock()
        with in_hub(self.hub), transaction.atomic():
            self._check_lease()
            quiet = [
                self._row(stream, record, now)
                for stream in self.streams.values()
                for record in stream.quiet.values()
            ]
            if quiet:
                MirroredObject.objects.bulk_create(
                    quiet,
                    update_conflicts=True,
                    unique_fields=_KEY,
                    update_fields=_QUIET_COLUMNS,
                )
            rows = []
            for pk, stream in self.streams.items():
                each = facts.get(pk, StreamFacts())
                values = {
                    **asdict(each),
                    "events_per_minute": stream.events_per_minute(each.events, now),
                }
                rows.append(
                    HubStream(
                        pk=pk,
                        hub_id=self.hub,
                        resource_version=stream.position,
                        **values,
                    )
                )
            counters = (
                "events",
                "events_per_minute",
                "bytes",
                "relists",
                "skipped",
                "failures",
            )
            HubStream.objects.bulk_update(
                rows, ("resource_version", "heard_at", *counters)
            )
        for stream in self.streams.values():
            for key, record in stream.quiet.items():
                if stored := stream.known.get(key):
                    stream.known[key] = stored._replace(
                        resource_version=record.resource_version
                    )
            stream.quiet.clear()


def is_bookmark(item: StreamItem) -> bool:
    return item.record is None and item.removal is None and item.listed_uids is None


def is_heartbeat(stream: MirrorStream, item: StreamItem) -> bool:
    """Return whether a newer version of a stored object differs by its heartbeat alone."""
    record = item.record
    stored = stream.known.get(record.key) if record and not item.is_from_list else None
    if (
        record is None
        or stored is None
        or (stored.uid, stored.digest) != (record.uid, record.digest)
    ):
        return False
    newest = stream.quiet.get(record.key, stored).resource_version
    return newest != record.resource_version and not is_older(
        record.resource_version, newest
    )


def binding_change(record: MirrorRecord, now: datetime) -> BindingChange:
    columns = record.columns
    return BindingChange(
        owner=columns.owner,
        cluster=columns.cluster,
        uid=record.uid,
        state=columns.state,
        policy_snapshot=columns.policy_snapshot,
        resource_version=record.resource_version,
        seen_at=now,
    )


def is_older(one: str, other: str) -> bool:
    """Return whether both are decimal numbers and the first is lower; anything else cannot be compared."""
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


def moment_of(text: str) -> datetime | None:
    """Return the time that a hub wrote; None where it cannot be read."""
    try:
        moment = parse_datetime(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
