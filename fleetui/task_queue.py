"""Send tasks by name after commit, and record the heartbeats of workers.

A message is a hint: due work is in the database, and the sweep finds it if the message is lost. A queue
therefore holds few hints, however much changes; what does not fit is not sent.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partialmethod
from time import monotonic
from typing import Any, cast

from celery import current_app
from celery.beat import PersistentScheduler
from django.db import connection, transaction
from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from fleetui.broker import PERIODIC, UPDATES, VALID_SECONDS
from fleetui.models import WorkerHeartbeat

log = logging.getLogger(__name__)

MOST_WAITING = 20
"""A queue with so many messages takes no more hints: the work they stand for is found without them."""
_PAUSE = 5.0
"""Seconds without a try after one failed, so that a request waits at most once for an unavailable broker."""
_silent_until = 0.0


def enqueue(task: str, **arguments: Any) -> None:
    """Send a task after the commit of the current transaction; an unavailable broker is ignored."""
    transaction.on_commit(lambda: send_now(task, arguments))


def send_now(task: str, arguments: dict[str, Any]) -> None:
    """Send a task now, unless its queue is full or the broker was unavailable a moment ago."""
    global _silent_until  # noqa: PLW0603 -- one broker per process
    if monotonic() < _silent_until:
        return
    try:
        with current_app.producer_or_acquire() as producer:
            if is_full(task, producer):
                return
            current_app.send_task(
                task,
                kwargs=arguments,
                producer=producer,
                expires=VALID_SECONDS,
                ignore_result=True,
                retry=False,
            )
    except (OperationalError, OSError) as error:
        _silent_until = monotonic() + _PAUSE
        log.warning(
            "wake-up not sent, the sweep will find it: task=%s error=%s", task, error
        )


def is_full(task: str, producer: Producer) -> bool:
    """Return whether the queue of a task takes no more messages. Raise OperationalError without a broker."""
    queue = current_app.amqp.router.route({}, task)["queue"]
    connection = cast(Connection, producer.connection)
    try:
        return (
            int(queue.queue_declare(channel=producer.channel).message_count)
            >= MOST_WAITING
        )
    except (*connection.connection_errors, *connection.channel_errors) as error:
        raise OperationalError(str(error)) from error


class BoundedScheduler(PersistentScheduler):
    """A Celery beat scheduler that leaves out a tick while the queue is full, as without a worker."""

    # Celery waits 10 ms less, and looks again and again meanwhile.
    adjust = partialmethod(PersistentScheduler.adjust, drift=0.0)

    def apply_async(
        self, entry: Any, producer: Any = None, advance: bool = True, **options: Any
    ) -> Any:
        if producer and not advance and is_full(entry.task, producer):
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **options)


HEARTBEAT_PERIOD = timedelta(seconds=5)
SILENT_AFTER = timedelta(seconds=40)
BUSY_AFTER = timedelta(seconds=15)


def record_heartbeat(
    queues: Collection[str] = (UPDATES,), *, waiting: int = 0, now: datetime
) -> None:
    """Record that a worker reads these queues, and how many updates wait for one."""
    rows = WorkerHeartbeat.objects.in_bulk(list(queues))
    beats = []
    for queue in queues:
        before = rows.get(queue)
        since = ((before and before.busy_since) or now) if waiting else None
        values = {"at": now, "waiting": waiting, "busy_since": since}
        beats.append(WorkerHeartbeat(queue=queue, since=now, **values))
    WorkerHeartbeat.objects.bulk_create(
        beats,
        update_conflicts=True,
        update_fields=["at", "waiting", "busy_since"],
        unique_fields=["queue"],
    )


RECORD_PERIOD = timedelta(seconds=5)
LONGEST_PAUSE = timedelta(minutes=2)
"""A sweep or a round of observation that ended longer ago means that no beat runs, or that they fail."""


def record_end(column: str, *, now: datetime) -> None:
    """Record the end of a sweep (`swept_at`) or of an observation (`observed_at`), every five seconds."""
    rows = WorkerHeartbeat.objects.filter(queue=PERIODIC)
    last = rows.values_list(column, flat=True).first()
    if last is None or now - last >= RECORD_PERIOD:
        rows.update(**{column: now})


@dataclass(frozen=True, slots=True)
class PeriodicAges:
    """How long ago the last sweep and the last round of observation ended; None: never, or not known.

    `paused_for` is the longer of the two where it is too long; before the first ones it counts from the first
    heartbeat of a worker.
    """

    sweep: timedelta | None = None
    observation: timedelta | None = None
    paused_for: timedelta | None = None


def periodic_ages(heartbeat: WorkerHeartbeat | None, *, now: datetime) -> PeriodicAges:
    """Return the ages of what the worker of the queue of periodic tasks runs, from its row."""
    if heartbeat is None:
        return PeriodicAges()
    sweep, observation = (
        now - at if at else None for at in (heartbeat.swept_at, heartbeat.observed_at)
    )
    moments = (
        heartbeat.swept_at or heartbeat.since,
        heartbeat.observed_at or heartbeat.since,
    )
    longest = max((now - at for at in moments if at), default=None)
    is_paused = longest is not None and longest > LONGEST_PAUSE
    return PeriodicAges(sweep, observation, longest if is_paused else None)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Whether the workers keep up: since when none has responded, or how many updates wait for a busy one."""

    silent_for: timedelta | None = None
    waiting: int = 0
    periodic: PeriodicAges = PeriodicAges()


def worker_state(
    *, now: datetime, due_since: Callable[[], datetime | None]
) -> WorkerState:
    """Return the state of the workers; a missing heartbeat matters only while work is due.

    `due_since` returns since when work is due; without any heartbeat the silence counts from then.
    """
    rows = WorkerHeartbeat.objects.in_bulk([UPDATES, PERIODIC])
    last, periodic = rows.get(UPDATES), periodic_ages(rows.get(PERIODIC), now=now)
    if last and now - last.at <= SILENT_AFTER:
        is_busy = last.busy_since is not None and now - last.busy_since > BUSY_AFTER
        return WorkerState(waiting=last.waiting if is_busy else 0, periodic=periodic)
    since = due_since()
    silence = now - (last.at if last else since) if since else timedelta()
    return WorkerState(
        silent_for=silence if silence > SILENT_AFTER else None, periodic=periodic
    )


def live_workers(*, now: datetime) -> dict[str, datetime]:
    """Return the queues whose worker has reported lately, with the time; none without the tables."""
    if WorkerHeartbeat._meta.db_table not in connection.introspection.table_names():
        return {}
    return dict(
        WorkerHeartbeat.objects.filter(at__gt=now - SILENT_AFTER).values_list(
            "queue", "at"
        )
    )
