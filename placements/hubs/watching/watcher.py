"""Watches live hubs: leases, the threads of each hub, and the one thread that writes (8.1)."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    transaction,
)
from django.db.models import Q

from clusters.driver_factory import wall_clock
from clusters.hub_state import HubState
from clusters.models import Hub, HubStream
from fleetui.audit import AuditEvent, record
from fleetui.bulk import save_fields
from fleetui.hub_scope import in_hub
from fleetui.threads import close_connections
from placements.hubs.connections.connection import HubTarget
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.queries import HEALTHY_STATES
from placements.hubs.watching.event_queue import EventQueue
from placements.hubs.watching.mirror import FLUSH_SECONDS, HubMirror, LeaseLost
from placements.hubs.watching.runner import HubRunner, Place
from placements.hubs.watching.states import SIDE_STATES, HubCondition, StreamState
from placements.hubs.watching.stream import StreamItem, StreamPace

log = logging.getLogger(__name__)

MOST_HUBS = 12
"""About 300 threads; more hubs need more processes."""
LEASE = timedelta(seconds=15)
RENEW_SECONDS = 5.0
TICK_SECONDS = 1.0
RETRY_SECONDS = 1.0
_FINAL = frozenset({HubState.REFUSED, HubState.UNSUITABLE, HubState.UNREACHABLE})


class WriterEnded(RuntimeError):
    """The thread that writes the mirror has ended by an unexpected error."""


class Watcher:
    """The hubs of this process. `run` belongs to the main thread; it is the one of leases and states."""

    def __init__(
        self,
        *,
        pace: StreamPace | None = None,
        clock: Callable[[], datetime] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        tick_seconds: float = TICK_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        flush_seconds: float = FLUSH_SECONDS,
        committed: Callable[[int], None] = lambda _hub: None,
    ) -> None:
        self._pace = pace
        self._clock = clock
        self._monotonic = monotonic
        self._tick_seconds = tick_seconds
        self._renew_seconds = renew_seconds
        self._flush_seconds = flush_seconds
        self._committed = committed
        self.token = uuid4().hex
        self.queue = EventQueue()
        self.hubs: dict[int, HubRunner] = {}
        self._renewed = float("-inf")
        self._stopped = threading.Event()

    def run(
        self, stopped: threading.Event, *, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Watch until the event or until something is true, then write what was read and release the hubs.

        Raise WriterEnded: a process that reads and writes nothing would keep its hubs from the others.
        """
        writer = threading.Thread(
            target=self.write_regularly, name="mirror writer", daemon=True
        )
        writer.start()
        try:
            while not stopped.is_set():
                try:
                    self.tick()
                    if until():
                        self._report_all()  # what was listed since the tick began
                        break
                except (OperationalError, InterfaceError) as error:
                    log.warning(
                        "database not available: error=%s", type(error).__name__
                    )
                    close_old_connections()
                if not writer.is_alive():
                    raise WriterEnded
                stopped.wait(self._tick_seconds)
        finally:
            for hub in self.hubs.values():
                hub.stop()
            self._stopped.set()
            self.queue.close(*self.hubs)
            writer.join(4.0)
            for hub in self.hubs.values():
                hub.join()
            try:
                self._release(list(self.hubs))
            except DatabaseError as error:
                log.warning("leases not released: error=%s", type(error).__name__)
            close_connections()

    def tick(self) -> None:
        """Renew and take leases when that is due, and write the states that changed."""
        now = self._monotonic()
        if now - self._renewed >= self._renew_seconds or any(
            hub.is_lost for hub in self.hubs.values()
        ):
            self._renew_leases()
            self._renewed = now
        for hub in self.hubs.values():
            if hub.discovery is not hub.started:
                self._start_streams(hub)
        self._report_all()

    def _report_all(self) -> None:
        for hub in self.hubs.values():
            self._report(hub)

    def _renew_leases(self) -> None:
        now = self._clock()
        wanted = Hub.objects.filter(
            removed_at=None, is_paused=False, kind__in=HUB_KINDS
        )
        own = wanted.filter(lease_token=self.token, pk__in=list(self.hubs))
        own.update(lease_expires_at=now + LEASE)
        rows = {row.pk: row for row in own.select_related("credential")}
        for pk in [pk for pk in self.hubs if pk not in rows]:
            self._drop(pk)
        for pk, row in rows.items():
            hub = self.hubs[pk]
            hub.retarget(HubTarget.of(row))
            if list(row.namespaces) != list(hub.namespaces):
                hub.namespaces = row.namespaces
                hub.started = None
        is_free = (
            Q(lease_expires_at=None) | Q(lease_expires_at__lt=now) | Q(lease_token="")
        )
        for row in (
            wanted.exclude(pk__in=list(self.hubs))
            .filter(is_free)
            .select_related("credential")
        ):
            if len(self.hubs) >= MOST_HUBS:
                break
            chosen = Hub.objects.filter(is_free, pk=row.pk)
            if chosen.update(lease_token=self.token, lease_expires_at=now + LEASE):
                self._take(row)

    def _take(self, row: Hub) -> None:
        api = HUB_KINDS[row.kind]
        mirror = HubMirror(row.pk, api, self.token, clock=self._clock)
        target = HubTarget.of(row)
        hub = HubRunner(
            target, api, mirror, self.queue, pace=self._pace, monotonic=self._monotonic
        )
        hub.namespaces = row.namespaces
        hub.state = row.state
        hub.reason = row.state_reason
        self.hubs = {**self.hubs, row.pk: hub}
        hub.start()
        log.info("hub taken: hub=%s", row.name)

    def _drop(self, pk: int) -> None:
        """Stop a hub that was paused or removed, or that another watcher has."""
        hub = self.hubs[pk]
        hub.stop()
        self.queue.close(pk)
        self.hubs = {key: runner for key, runner in self.hubs.items() if key != pk}
        hub.join()
        self._release([pk])
        log.info("hub dropped: hub=%s", hub.target.name)

    def _release(self, pks: list[int]) -> None:
        Hub.objects.filter(pk__in=pks, lease_token=self.token).update(
            lease_token="", lease_expires_at=self._clock()
        )

    def _start_streams(self, hub: HubRunner) -> None:
        """Make the rows of what was discovered, start these streams, and stop the others."""
        discovery = hub.discovery
        if discovery is None:
            return
        wanted = hub.places(hub.namespaces)
        if not discovery.unsuitable:
            for place in hub.streams.keys() - wanted.keys():
                hub.stop_stream(place)
            with in_hub(hub.target.pk):
                rows = [
                    self._stream_row(hub, place, version)
                    for place, version in wanted.items()
                ]
                # Listed from the start once it is served again.
                others = HubStream.objects.exclude(pk__in=[row.pk for row in rows])
                others.update(
                    state=StreamState.ABSENT.value,
                    error="not served",
                    resource_version="",
                )
                # Earlier releases mirrored the Kubernetes events, which nothing reads.
                others.filter(group="", plural="events").delete()
            for place, row in zip(wanted, rows, strict=True):
                if row.pk not in hub.mirror.streams:
                    hub.mirror.add(row, place.kind)
                hub.run_stream(place, row)
            values: dict[str, object] = {"server_version": discovery.server_version}
            # Where the hub does not say them, those of the last check stay.
            if discovery.permissions:
                documents = [
                    permission.document for permission in discovery.permissions
                ]
                values["found"] = {"permissions": documents}
            Hub.objects.filter(pk=hub.target.pk, lease_token=self.token).update(
                **values
            )
        hub.started = discovery

    def _stream_row(
        self,
        hub: HubRunner,
        place: Place,
        version: str,
    ) -> HubStream:
        kind = place.kind
        row, _ = HubStream.objects.get_or_create(
            hub_id=hub.target.pk,
            group=kind.group,
            plural=kind.plural,
            namespace=place.namespace,
            defaults={
                "version": version,
                "kind": kind.kind,
                "form": kind.form.value,
                "is_required": kind.is_required,
            },
        )
        if row.version != version:
            # Listed again through the other version; what is stored stays until then.
            save_fields(row, version=version, resource_version="")
        return row

    def _report(self, hub: HubRunner) -> None:
        """Write the state of a hub and those of its streams where they changed."""
        condition = hub.condition()
        with in_hub(hub.target.pk):
            if (condition.state, condition.reason) != (hub.state, hub.reason):
                self._write_condition(hub, condition)
            for stream in hub.streams.values():
                status = stream.status
                values = (status.state.value, status.error[:500])
                if hub.reported.get(stream.number) == values:
                    continue
                retry_at = None
                if status.retry_at is not None:
                    left = timedelta(seconds=status.retry_at - self._monotonic())
                    retry_at = self._clock() + left
                HubStream.objects.filter(pk=stream.number).update(
                    state=values[0],
                    error=values[1],
                    retry_at=retry_at,
                    failures=status.failures,
                )
                hub.reported[stream.number] = values
        offset = hub.clock_offset()
        if offset is not None and (
            hub.offset is None or abs(offset - hub.offset) > 1.0
        ):
            Hub.objects.filter(pk=hub.target.pk).update(clock_offset_seconds=offset)
            hub.offset = offset

    def _write_condition(self, hub: HubRunner, condition: HubCondition) -> None:
        now = self._clock()
        reason = condition.reason[:500]
        values: dict[str, object] = {
            "state": condition.state.value,
            "state_reason": reason,
        }
        if condition.state != hub.state:
            values["state_since"] = now
        with transaction.atomic():
            own = Hub.objects.filter(
                pk=hub.target.pk,
                lease_token=self.token,
                is_paused=False,
                removed_at=None,
            )
            if own.update(**values) and condition.state != hub.state:
                before = {"state": hub.state}
                after = {"state": condition.state.value, "reason": reason}
                event = AuditEvent(
                    "state changed",
                    "hub",
                    hub.target.name,
                    None,
                    before,
                    after,
                    is_warning=condition.state not in HEALTHY_STATES,
                )
                record(event, by=None, now=now)
        if condition.state != hub.state:
            hub.flushed = float("-inf")  # a new state is shown with its age
        hub.state = condition.state.value
        hub.reason = condition.reason

    def write_regularly(self) -> None:
        """Write batches until everything is written after `run` has stopped the streams."""
        try:
            while self.write_next(seconds=min(0.5, self._flush_seconds)):
                pass
        finally:
            close_connections()

    def write_next(self, *, seconds: float) -> bool:
        """Write one batch, if one comes in time, and what is due; return False when all is written."""
        batch = self.queue.take(seconds=seconds)
        for pk, items in batch.items():
            if hub := self.hubs.get(pk):
                self._write(hub, items)
        now = self._monotonic()
        is_over = self._stopped.is_set() and not batch
        for hub in self.hubs.values():
            if is_over or now - hub.flushed >= self._flush_seconds:
                self.flush(hub, now)
        return not is_over

    def _write(self, hub: HubRunner, items: Sequence[StreamItem]) -> None:
        """Write a batch, again and again while the database is not available."""
        while not hub.is_lost:
            try:
                is_dirty = hub.mirror.write(items)
            except LeaseLost:
                hub.is_lost = True
            except (DataError, IntegrityError, UnicodeEncodeError) as error:
                self._write_apart(hub, items, error)
                return
            except (OperationalError, InterfaceError) as error:
                log.warning(
                    "batch not written: hub=%s error=%s",
                    hub.target.name,
                    type(error).__name__,
                )
                close_connections()
                if self._stopped.wait(RETRY_SECONDS):
                    return
            else:
                hub.note_lists(items)
                if is_dirty:
                    self._committed(hub.target.pk)
                return

    def _write_apart(
        self,
        hub: HubRunner,
        items: Sequence[StreamItem],
        error: Exception,
    ) -> None:
        """Write the halves of a batch that the database refuses, down to the object that it refuses."""
        if len(items) > 1:
            middle = len(items) // 2
            self._write(hub, items[:middle])
            self._write(hub, items[middle:])
            return
        name = items[0].record.name if items[0].record else ""
        log.warning(
            "object not written: hub=%s name=%s error=%s",
            hub.target.name,
            name,
            type(error).__name__,
        )
        if status := hub.statuses.get(items[0].stream):
            status.skipped += 1
            status.error = f"{name}: the database refuses it"

    def flush(self, hub: HubRunner, now: float) -> None:
        try:
            hub.mirror.flush(hub.statuses, monotonic=now)
        except LeaseLost:
            hub.is_lost = True
        except (OperationalError, InterfaceError) as error:
            log.warning(
                "positions not written: hub=%s error=%s",
                hub.target.name,
                type(error).__name__,
            )
            close_connections()
        hub.flushed = now

    def is_synced(self) -> bool:
        """Return whether each hub is listed completely, or cannot be."""
        return all(
            hub.condition().state in _FINAL
            or (
                bool(hub.streams)
                and all(
                    status.is_listed or status.state in SIDE_STATES
                    for status in hub.every_status()
                )
            )
            for hub in self.hubs.values()
        )
