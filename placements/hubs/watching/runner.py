"""The threads of one hub in this process: one that connects and discovers, and one for each stream."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from statistics import median
from typing import Protocol

from clusters.drivers.base import DriverUnavailable
from clusters.hub_state import HubState
from clusters.models import HubStream
from placements.hubs.connections.connection import REREAD_SECONDS, HubAccess, HubTarget
from placements.hubs.connections.discovery import HubDiscovery, discover
from placements.hubs.kinds.base import HubApi, StreamKind
from placements.hubs.watching.mirror import HubMirror
from placements.hubs.watching.states import (
    UNREACHABLE_CODES,
    UNREACHABLE_SECONDS,
    HubCondition,
    StreamState,
    StreamStatus,
    condition_of,
)
from placements.hubs.watching.stream import (
    REJECTED,
    StreamItem,
    StreamPace,
    StreamReader,
)

DISCOVERY_SECONDS = 600.0
REQUEST_SECONDS = 30.0
UNSUITABLE_SECONDS = 60.0
LISTS_AT_ONCE = 2
STOP_SECONDS = 4.0
DATES_FOR_OFFSET = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A stream kind with the namespace that it is restricted to; "" is all of them."""

    kind: StreamKind
    namespace: str = ""


class ItemQueue(Protocol):
    """Takes what the streams of hubs deliver; `put` returns False once it takes no more."""

    def open(self, hub: int, /) -> None: ...

    def put(self, hub: int, item: StreamItem, /) -> bool: ...


class HubRunner:
    """The connection and the streams of one hub; no thread of it uses the database.

    What the watcher last wrote of it are `state`, `reason`, `offset` and `reported`; `flushed` is when,
    and `started` is the discovery whose streams run.
    """

    def __init__(
        self,
        target: HubTarget,
        api: HubApi,
        mirror: HubMirror,
        queue: ItemQueue,
        *,
        pace: StreamPace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target = target
        self.api = api
        self.mirror = mirror
        self._queue = queue
        self._monotonic = monotonic
        self._pace = pace or StreamPace()
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._is_changed = True
        self._is_forced = False
        self.access = HubAccess(
            wants_reading=self._wake.set,
            wants_discovery=self.wants_discovery,
            monotonic=monotonic,
        )
        self._lists = threading.Semaphore(LISTS_AT_ONCE)
        self.discovery: HubDiscovery | None = None
        self.error = self.error_code = ""
        self._failing: float | None = None
        self._discovered: float | None = None
        self.streams: dict[Place, StreamReader] = {}
        self._threads: list[threading.Thread] = []
        self.is_lost = False
        """The lease belongs to another watcher."""
        self.namespaces: Sequence[str] = ()
        self.started: HubDiscovery | None = None
        self.state = self.reason = ""
        self.offset: float | None = None
        self.reported: dict[int, tuple[str, str]] = {}
        self.flushed = monotonic()

    def start(self) -> None:
        self._queue.open(self.target.pk)
        self._run_thread(f"hub {self.target.name}", self.connect_regularly)

    def wake(self) -> None:
        self._wake.set()

    def wants_discovery(self) -> None:
        """Discover again soon: a path is missing."""
        discovered = self._discovered
        if (
            discovered is not None
            and self._monotonic() - discovered > self._pace.unavailable / 2
        ):
            self._is_forced = True
            self.wake()

    def retarget(self, target: HubTarget) -> None:
        is_changed = target.version != self.target.version
        self.target = target  # encrypted with another key it has the same version
        if is_changed:
            self._is_changed = True
            self.wake()

    def stop(self) -> None:
        """Stop reading; what is queued stays there."""
        self._stopped.set()
        self.wake()
        for stream in self.streams.values():
            stream.stop()

    def join(self) -> None:
        until = self._monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - self._monotonic()))
        self.access.close()

    def put(self, item: StreamItem) -> bool:
        return self._queue.put(self.target.pk, item)

    def connect_regularly(self) -> None:
        pause = 0.0
        while not self._stopped.is_set():
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopped.is_set():
                return
            pause = self._connect()

    def _connect(self) -> float:
        """Use the present secret where it changed or has to be read again, discover; return when next."""
        is_changed = self._is_changed
        self._is_changed = False
        if is_changed or self.access.needs_reading:
            if self.access.use(self.target, is_changed=is_changed) is None:
                return min(REREAD_SECONDS, self._pace.unavailable)
            for stream in self.streams.values():
                stream.reconnect()
        left = self.access.blocked()
        if left:
            return min(left, REREAD_SECONDS)
        now = self._monotonic()
        is_due = (
            self._discovered is None or now - self._discovered >= self._discovery_period
        )
        if is_due or self._is_forced or is_changed:
            self._is_forced = False
            return self._discover()
        return min(REREAD_SECONDS, self._discovery_period)

    @property
    def _discovery_period(self) -> float:
        """The seconds between two discoveries: fewer while a kind is not served, which may be added."""
        if self.discovery is not None and self.discovery.absent:
            return self._pace.absent
        return DISCOVERY_SECONDS

    def _discover(self) -> float:
        try:
            client = self.access.client()
            discovery = discover(
                self.api, client, seconds=REQUEST_SECONDS, monotonic=self._monotonic
            )
        except DriverUnavailable as error:
            self.error = str(error)
            self.error_code = error.code
            self._failing = (
                self._monotonic() if self._failing is None else self._failing
            )
            if error.code == REJECTED:
                self.access.rejected(client)
                return 0.0
            return min(
                self._pace.longest_backoff,
                error.retry_after or 10 * self._pace.first_backoff,
            )
        self.access.accepted(client)
        self.error = ""
        self.error_code = ""
        self._failing = None
        self.discovery = discovery
        self._discovered = self._monotonic()
        if discovery.unsuitable or any(kind.is_required for kind in discovery.absent):
            self._discovered = None  # a server that has just started does not serve all of its kinds yet
            return min(UNSUITABLE_SECONDS, self._pace.unavailable)
        return min(REREAD_SECONDS, self._discovery_period)

    def run_stream(self, place: Place, row: HubStream) -> None:
        """Start the stream of a place, or start it again through another version."""
        old = self.streams.get(place)
        if old and old.version == row.version:
            return
        if old:
            old.stop()
        stream = StreamReader(
            row.pk,
            self.api,
            place.kind,
            row.version,
            place.namespace,
            self.access,
            self,
            position=row.resource_version,
            is_listed=row.listed_at is not None,
            pace=self._pace,
            lists=self._lists,
            monotonic=self._monotonic,
        )
        self.streams = {**self.streams, place: stream}
        self._run_thread(f"{place.kind.plural} of {self.target.name}", stream.run)

    def stop_stream(self, place: Place) -> None:
        self.streams[place].stop()
        self.streams = {
            key: reader for key, reader in self.streams.items() if key != place
        }

    def _run_thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    @property
    def is_undecided(self) -> bool:
        """Return whether neither a discovery has succeeded yet nor anything failed."""
        failed = self.error or self.access.rejection
        return self.discovery is None and not failed

    def places(self, namespaces: Sequence[str]) -> dict[Place, str]:
        """Return the streams of the hub with their versions, the required kinds first.

        Where namespaces are listed, there is one for each of them and namespaced kind.
        """
        places = {}
        for kind, version in (
            self.discovery.versions if self.discovery else {}
        ).items():
            if not version:
                continue
            is_divided = kind.is_namespaced and namespaces
            for namespace in namespaces if is_divided else ("",):
                places[Place(kind, namespace)] = version
        return places

    @property
    def statuses(self) -> dict[int, StreamStatus]:
        return {stream.number: stream.status for stream in self.streams.values()}

    def note_lists(self, items: Iterable[StreamItem]) -> None:
        """Note which streams have a complete list in the mirror now."""
        statuses = self.statuses
        for item in items:
            if item.listed_uids is not None and item.stream in statuses:
                statuses[item.stream].is_listed = True

    def every_status(self) -> list[StreamStatus]:
        """Return the statuses of all kinds, those that the hub does not serve last."""
        absent = self.discovery.absent if self.discovery else ()
        return [
            *self.statuses.values(),
            *(StreamStatus(kind, StreamState.ABSENT) for kind in absent),
        ]

    @property
    def has_required(self) -> bool:
        required = [status for status in self.every_status() if status.kind.is_required]
        return bool(required) and all(status.is_listed for status in required)

    def condition(self) -> HubCondition:
        rejection = self.access.rejection
        discovery = self.discovery or HubDiscovery()
        now = self._monotonic()
        if self.streams and self.discovery and not discovery.unsuitable:
            return condition_of(self.every_status(), now=now, rejected=rejection)
        if rejection:
            return HubCondition(HubState.REFUSED, rejection)
        if discovery.unsuitable:
            return HubCondition(HubState.UNSUITABLE, discovery.unsuitable)
        missing = next((kind for kind in discovery.absent if kind.is_required), None)
        if missing:
            return HubCondition(
                HubState.UNSUITABLE, f"the hub does not serve {missing.resource}"
            )
        if (
            self._failing is not None
            and self.error_code in UNREACHABLE_CODES
            and now - self._failing > UNREACHABLE_SECONDS
        ):
            return HubCondition(HubState.UNREACHABLE, self.error)
        return HubCondition(HubState.CONNECTING, self.error)

    def clock_offset(self) -> float | None:
        """Return how far the clock of the hub is ahead, the median of five answers; None before there are."""
        offsets = []
        for stream in self.streams.values():
            for at, text in stream.status.dates:
                try:
                    offsets.append(parsedate_to_datetime(text).timestamp() - at)
                except ValueError:
                    continue
        return round(median(offsets), 1) if len(offsets) >= DATES_FOR_OFFSET else None
