"""One stream: list and watch of one kind, with back-off, no database (`rules/live-hub.md#streams`)."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import JSON, ByteStream, Client, Response
from placements.hubs.kinds.base import Form, HubApi, StreamKind
from placements.hubs.trimming import MirrorRecord, UnusableObject, record_of
from placements.hubs.watching.states import StreamState, StreamStatus
from placements.hubs.watching.watch_reader import (
    EventType,
    LineReader,
    LineTooLong,
    UnknownEventType,
    UnreadableLine,
    WatchEvent,
    parse_event,
)

METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_OBJECT = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LIMITS = (500, 50, 5)
MOST_EXPIRED = 3
"""So many expired continue tokens in a row, and the list is requested in one piece."""
REJECTED = "credentials"


@dataclass(frozen=True, slots=True)
class StreamPace:
    """The times of a stream in seconds."""

    first_backoff: float = 0.5
    longest_backoff: float = 60.0
    steady: float = 60.0
    """After so much watching a failure counts as the first one."""
    watch: tuple[int, int] = (240, 480)
    extra_silence: float = 30.0
    page: float = 60.0
    unavailable: float = 300.0
    """Between attempts at a kind that is absent or forbidden."""
    absent: float = 60.0
    """Between two discoveries while a kind is not served."""
    starting: float = 60.0
    """So long a kind that was served is tried as after any failure: a server that has just started answers
    403 and 404 until it has read its roles and definitions."""
    longest_pause: float = 120.0


class ObjectRemoval(NamedTuple):
    namespace: str
    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class StreamItem:
    """What a stream delivers, in order. `position` is its resourceVersion afterwards, "" while it lists.

    `listed_uids`: the UIDs of a complete list, after its last object; others were deleted.
    """

    stream: int
    record: MirrorRecord | None = None
    removal: ObjectRemoval | None = None
    position: str = ""
    is_from_list: bool = False
    listed_uids: frozenset[str] | None = None

    @property
    def key(self) -> tuple[str, str] | None:
        """The namespace and the name of the object that it is about."""
        one = self.record or self.removal
        return (one.namespace, one.name) if one else None


class Sink(Protocol):
    """Takes what streams deliver; `put` waits while too much is held and returns False when it is closed."""

    def put(self, item: StreamItem) -> bool: ...


class ClientSource(Protocol):
    """How a stream reaches its hub; the client changes with connection and credentials."""

    def client(self) -> Client: ...

    def rejected(self, client: Client) -> None: ...

    def accepted(self, client: Client) -> None: ...

    def blocked(self) -> float: ...

    def path_missing(self) -> None: ...


class _ListAgain(Exception):
    """The position of a stream is no longer served."""


_NOT_SERVED = {
    403: (StreamState.FORBIDDEN, "not allowed to"),
    404: (StreamState.ABSENT, "not served:"),
}


class _NotServed(Exception):
    """The kind is absent or forbidden."""

    def __init__(self, state: StreamState, message: str) -> None:
        super().__init__(message)
        self.state = state


class StreamReader:
    """Lists and watches one kind until it is stopped; `run` belongs to one thread."""

    def __init__(
        self,
        number: int,
        hub: HubApi,
        stream: StreamKind,
        version: str,
        namespace: str,
        access: ClientSource,
        sink: Sink,
        *,
        position: str = "",
        is_listed: bool = False,
        pace: StreamPace | None = None,
        lists: threading.Semaphore | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self.number = number
        self.kind = stream
        self.version = version
        self.status = StreamStatus(
            stream, position=position, is_listed=is_listed or bool(position)
        )
        self._hub = hub
        self._access = access
        self._sink = sink
        self._path = stream.path(version, namespace)
        self._pace = pace or StreamPace()
        self._monotonic = monotonic
        self._chance = chance or random.Random()  # noqa: S311 -- spreads requests
        self._lists = lists or threading.Semaphore()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._open: ByteStream | None = None
        self._client: Client | None = None
        self._limit = LIMITS[0]
        self._relisted_at: float | None = None

    def stop(self) -> None:
        """End it from another thread, immediately."""
        self._stopped.set()
        self.reconnect()

    def reconnect(self) -> None:
        """Connect again now, with the present client, from another thread."""
        self._wake.set()
        if opened := self._open:
            opened.shut_down()

    def run(self) -> None:
        self.status.disconnected = self._monotonic()
        while not self._stopped.is_set():
            started = self._monotonic()
            try:
                pause = self._turn()
            except _NotServed as error:
                pause = self._not_served(error, started)
            except _ListAgain as error:
                pause = self._forget_position(str(error))
            except (LineTooLong, UnreadableLine) as error:
                self._failed(StreamState.FAILING, str(error))
                if isinstance(error, LineTooLong):
                    self.status.position = ""
                    self._limit = LIMITS[1]
                else:
                    self.status.skipped += 1
                pause = self._backoff(started)
            except DriverUnavailable as error:
                if (
                    error.code == "no-such-path"
                ):  # the definition of the kind was removed
                    self._access.path_missing()
                    words = f"not served: {self.kind.resource}"
                    pause = self._not_served(
                        _NotServed(StreamState.ABSENT, words), started
                    )
                else:
                    pause = self._unavailable(error, started)
            if pause and not self._stopped.is_set():
                self.status.retry_at = self._monotonic() + pause
                self._wake.wait(pause)
                self.status.retry_at = None
            self._wake.clear()

    def _turn(self) -> float:
        """List if there is no position, then watch until the connection ends; return how long to wait."""
        while left := self._access.blocked():
            self._failed(
                StreamState.FAILING, "credentials rejected (401)", code=REJECTED
            )
            if self._wake.wait(left) or self._stopped.is_set():
                return 0.0
        if not self.status.position:
            with self._lists:
                if self._stopped.is_set():
                    return 0.0
                self._list()
        started = self._monotonic()
        if (
            not self.status.position
        ):  # nothing takes the items any more: the stream is about to be stopped
            return self._backoff(started)
        return 0.0 if self._watch() else self._backoff(started)

    def _list(self) -> None:
        status = self.status
        status.state = StreamState.LISTING
        status.listing = self._monotonic()
        if status.lists or status.is_listed:
            status.relists += 1
        expired = 0
        token = ""
        uids: set[str] = set()
        while True:
            query: dict[str, str] = {}
            if expired >= MOST_EXPIRED:
                query["resourceVersion"] = "0"
            else:
                query |= {"limit": str(self._limit)} | (
                    {"continue": token} if token else {}
                )
            page = self._page(query)
            if (
                page is None
            ):  # expired; what was written stays until the list is complete
                expired = expired + 1
                token = ""
                uids.clear()
                continue
            metadata: Mapping[str, Any] = page.get("metadata") or {}
            for item in page.get("items") or ():
                record = self._record(item)
                if record:
                    uids.add(record.uid)
                    if not self._sink.put(
                        StreamItem(self.number, record, is_from_list=True)
                    ):
                        return
            status.heard_at = self._monotonic()
            token = str(metadata.get("continue") or "")
            if not token:
                break
        position = metadata.get("resourceVersion")
        if not isinstance(position, str) or not position:
            raise DriverUnavailable(
                "the list has no resourceVersion", code="not-kubernetes"
            )
        status.lists += 1
        status.position = position
        self._limit = LIMITS[0]
        self._sink.put(
            StreamItem(self.number, position=position, listed_uids=frozenset(uids))
        )
        status.listing = None

    def _page(self, query: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return a page of the list, None where its continue token has expired."""
        accept = METADATA_LIST if self.kind.form is Form.METADATA else JSON
        client = self._client = self._access.client()
        try:
            answer = client.request(
                "GET",
                self._path,
                query=query,
                deadline=self._monotonic() + self._pace.page,
                accept=accept,
            )
        except DriverUnavailable as error:
            if error.code == "too-large" and self._limit > LIMITS[-1]:
                self._limit = next(limit for limit in LIMITS if limit < self._limit)
            raise
        self._access.accepted(client)
        self.status.failing = None
        if answer.status == 410:
            return None
        self._check(answer, "list")
        items = answer.body.get("items")
        if answer.status != 200 or (items is not None and not isinstance(items, list)):
            raise DriverUnavailable(
                f"answer {answer.status} to a list", code="not-kubernetes"
            )
        return answer.body

    def _record(self, content: object) -> MirrorRecord | None:
        """Return what is stored of an object, None where it cannot be used, which is counted."""
        try:
            record = record_of(self._hub, self.kind, self.version, content)
        except UnusableObject as error:
            self.status.skipped += 1
            self.status.error = f"skipped: {error}"
            return None
        self.status.bytes += record.size
        return record

    def _check(self, answer: Response, verb: str) -> None:
        if answer.status in _NOT_SERVED:
            self.status.verb = verb
            state, words = _NOT_SERVED[answer.status]
            raise _NotServed(state, f"{words} {verb} {self.kind.resource}")

    def _watch(self) -> bool:
        """Watch until the connection ends; return whether it delivered anything."""
        status = self.status
        seconds = self._chance.randint(*self._pace.watch)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": status.position,
            "timeoutSeconds": str(seconds),
        }
        accept = METADATA_OBJECT if self.kind.form is Form.METADATA else JSON
        client = self._client = self._access.client()
        silence = seconds + self._pace.extra_silence
        opened = client.stream(self._path, query=query, silence=silence, accept=accept)
        if isinstance(opened, Response):
            if opened.status == 410:
                raise _ListAgain("the position has expired")
            self._check(opened, "watch")
            raise DriverUnavailable(
                f"answer {opened.status} to a watch", code=f"http-{opened.status}"
            )
        self._access.accepted(client)
        self._open = opened
        try:
            if self._wake.is_set():  # another client is to be used
                return True
            status.state = StreamState.WATCHING
            status.error = ""
            status.code = ""
            status.heard_at = self._monotonic()
            status.disconnected = status.failing = None
            if opened.date:
                status.dates = [*status.dates[-4:], (time.time(), opened.date)]
            return self._read(opened)
        finally:
            self._open = None
            status.disconnected = self._monotonic()
            opened.close()

    def _read(self, opened: ByteStream) -> bool:
        lines = LineReader()
        delivered = 0
        started = self._monotonic()
        while not self._stopped.is_set() and (piece := opened.read()):
            for line in lines.feed(piece):
                opened.renew()
                delivered += 1
                try:
                    event = parse_event(line)
                except UnknownEventType:
                    self.status.skipped += 1
                    continue
                self._handle(event)
            if self.status.failures and self._monotonic() - started > self._pace.steady:
                self.status.failures = 0
        return bool(delivered)

    def _handle(self, event: WatchEvent) -> None:
        status = self.status
        if event.type is EventType.ERROR:
            if event.object.get("code") == 410:
                raise _ListAgain("the position has expired")
            raise DriverUnavailable(
                f"error {event.object.get('code')} in a watch", code="broken"
            )
        status.heard_at = self._monotonic()
        position = event.resource_version
        if event.type is EventType.BOOKMARK:
            status.position = position or status.position
            self._sink.put(StreamItem(self.number, position=status.position))
            return
        status.events += 1
        record = self._record(event.object)
        if record is None:
            return
        status.position = position
        if event.type is EventType.DELETED:
            removal = ObjectRemoval(
                record.namespace, record.name, record.uid, record.resource_version
            )
            self._sink.put(StreamItem(self.number, removal=removal, position=position))
        else:
            self._sink.put(StreamItem(self.number, record, position=position))

    def _failed(
        self,
        state: StreamState,
        message: str,
        *,
        code: str = "",
    ) -> None:
        status = self.status
        now = self._monotonic()
        status.state = state
        status.error = message[:500]
        status.code = code
        status.disconnected = (
            now if status.disconnected is None else status.disconnected
        )
        status.listing = None

    def _not_served(self, error: _NotServed, started: float) -> float:
        since = self.status.disconnected
        was_served = self.status.is_listed or self.status.lists > 0
        if (
            was_served
            and since is not None
            and self._monotonic() - since < self._pace.starting
        ):
            self._failed(StreamState.FAILING, str(error))
            return self._backoff(started)
        self._failed(error.state, str(error))
        self._access.path_missing()
        return self._pace.unavailable

    def _unavailable(self, error: DriverUnavailable, started: float) -> float:
        if self._stopped.is_set():
            return 0.0
        status = self.status
        self._failed(StreamState.FAILING, str(error), code=error.code)
        status.failing = self._monotonic() if status.failing is None else status.failing
        if error.code == REJECTED and self._client:
            self._access.rejected(self._client)
            return 0.0
        if error.code == "not-kubernetes":
            self._access.path_missing()
        if error.code == "http-504" and status.position and status.failures:
            # The hub was restored, or a replica is behind: it does not know the position yet, or any more.
            return self._forget_position(str(error))
        if error.retry_after is not None:
            status.failures += 1
            return min(error.retry_after, self._pace.longest_pause)
        return self._backoff(started)

    def _forget_position(self, reason: str) -> float:
        """List again; without waiting, the first time in a while."""
        now = self._monotonic()
        self.status.position = ""
        self.status.error = reason
        is_first = (
            self._relisted_at is None or now - self._relisted_at > self._pace.steady
        )
        self._relisted_at = now
        return 0.0 if is_first else self._backoff(now)

    def _backoff(self, started: float) -> float:
        if self._monotonic() - started > self._pace.steady:
            self.status.failures = 0
        self.status.failures += 1
        usual: float = self._pace.first_backoff * 2 ** min(self.status.failures - 1, 16)
        return min(self._pace.longest_backoff, usual * self._chance.uniform(0.5, 1.5))
