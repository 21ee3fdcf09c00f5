"""The threads of one hub in this process: one that connects and discovers, and one for each stream."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from statistics import median

from clusters.drivers.base import DriverUnavailable
from clusters.hub_state import HubState
from placements.hubs.connections.connection import REREAD_SECONDS, HubAccess, HubTarget
from placements.hubs.connections.discovery import HubDiscovery, discover
from placements.hubs.kinds.base import HubApi, StreamKind
from placements.hubs.watching.event_queue import EventQueue
from placements.hubs.watching.mirror import HubMirror, StreamFacts
from placements.hubs.watching.states import (
    UNREACHABLE_CODES,
    UNREACHABLE_SECONDS,
    HubCondition,
    StreamHealth,
    StreamState,
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


def places_of(
    api_kinds: Sequence[StreamKind], namespaces: Sequence[str]
) -> list[Place]:
    """Return the streams of a hub: where namespaces are listed, one for each of them and namespaced kind."""
    return [
        Place(kind, namespace)
        for kind in api_kinds
        for namespace in (namespaces if kind.is_namespaced and namespaces else ("",))
    ]


class HubRunner:
    """The connection and the streams of one hub; no thread of it uses the database."""

    def __init__(
        self,
        target: HubTarget,
        api: HubApi,
        mirror: HubMirror,
        queue: EventQueue,
        *,
        pace: StreamPace | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        discovery_seconds: float = DISCOVERY_SECONDS,
    ) -> None:
        self.target, self.api, self.mirror = target, api, mirror
        self._queue, self._pace, self._monotonic = (
            queue,
            pace or StreamPace(),
            monotonic,
        )
        self._discovery_seconds = discovery_seconds
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._is_changed, self._is_forced = True, False
        self.access = HubAccess(
            wants_reading=self.wake,
            wants_discovery=self.wants_discovery,
            monotonic=monotonic,
        )
        self._lists = threading.Semaphore(LISTS_AT_ONCE)
        self.discovery: HubDiscovery | None = None
        self.discoveries = 0
        self.error = ""
        self.error_code = ""
        self._failing: float | None = None
        self._discovered: float | None = None
        self.streams: dict[Place, StreamReader] = {}
        self._threads: list[threading.Thread] = []
        self.is_lost = False
        """The lease belongs to another watcher."""

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
        is_changed, self._is_changed = self._is_changed, False
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
        lacks_kinds = self.discovery is not None and bool(self.discovery.absent)
        return (
            min(self._discovery_seconds, self._pace.absent)
            if lacks_kinds
            else self._discovery_seconds
        )

    def _discover(self) -> float:
        try:
            client = self.access.client()
            discovery = discover(
                self.api, client, seconds=REQUEST_SECONDS, monotonic=self._monotonic
            )
        except DriverUnavailable as error:
            self.error, self.error_code = str(error), error.code
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
        self.error, self.error_code, self._failing = "", "", None
        self.discovery, self.discoveries = discovery, self.discoveries + 1
        self._discovered = self._monotonic()
        if discovery.unsuitable or any(one.is_required for one in discovery.absent):
            self._discovered = None  # a server that has just started does not serve all of its kinds yet
            return min(UNSUITABLE_SECONDS, self._pace.unavailable)
        return min(REREAD_SECONDS, self._discovery_period)

    def run_stream(self, place: Place, pk: int, version: str, position: str) -> None:
        """Start the stream of a place, or start it again through another version."""
        if old := self.streams.get(place):
            if old.version == version:
                return
            old.stop()
            position = ""
        stream = StreamReader(
            pk,
            self.api,
            place.kind,
            version,
            place.namespace,
            self.access,
            self,
            position=position,
            pace=self._pace,
            lists=self._lists,
            monotonic=self._monotonic,
        )
        self.streams = {**self.streams, place: stream}
        self._run_thread(f"{place.kind.plural} of {self.target.name}", stream.run)

    def stop_stream(self, place: Place) -> None:
        self.streams[place].stop()
        self.streams = {key: one for key, one in self.streams.items() if key != place}

    def _run_thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def health(self) -> list[StreamHealth]:
        """Return the health of all streams; a kind counts as listed once its list is written."""
        now, written = self._monotonic(), self.mirror.streams
        healths = []
        for place, stream in self.streams.items():
            row = written.get(stream.number)
            health = stream.status.health(place.kind, now)
            healths.append(replace(health, is_listed=bool(row and row.is_listed)))
        if self.discovery:
            healths += [
                StreamHealth(kind.resource, StreamState.ABSENT, kind.is_required, False)
                for kind in self.discovery.absent
            ]
        return healths

    def condition(self) -> HubCondition:
        rejection, discovery = self.access.rejection, self.discovery
        if discovery is None or discovery.unsuitable or not self.streams:
            if rejection:
                return HubCondition(HubState.REFUSED, rejection)
            if discovery and discovery.unsuitable:
                return HubCondition(HubState.UNSUITABLE, discovery.unsuitable)
            absent = (
                [one.resource for one in discovery.absent if one.is_required]
                if discovery
                else []
            )
            if absent:
                return HubCondition(
                    HubState.UNSUITABLE, f"the hub does not serve {absent[0]}"
                )
            failing = (
                self._monotonic() - self._failing if self._failing is not None else 0.0
            )
            if failing > UNREACHABLE_SECONDS and self.error_code in UNREACHABLE_CODES:
                return HubCondition(HubState.UNREACHABLE, self.error)
            return HubCondition(HubState.CONNECTING, self.error)
        return condition_of(self.health(), rejected=rejection)

    def facts(self, now: datetime) -> Mapping[int, StreamFacts]:
        """Return what the writer stores of the streams from time to time."""
        monotonic = self._monotonic()
        facts = {}
        for stream in self.streams.values():
            status = stream.status
            last = status.heard_at
            heard_at = (
                None if last is None else now - timedelta(seconds=monotonic - last)
            )
            facts[stream.number] = StreamFacts(
                heard_at,
                status.events,
                status.bytes,
                status.relists,
                status.skipped,
                status.failures,
            )
        return facts

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
