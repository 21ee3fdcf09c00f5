"""Background tasks: short, level-triggered, safe to run twice or in two workers at once."""

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import Any

from celery import Task, shared_task
from celery.signals import worker_ready
from django.db import DatabaseError

from fleetui.broker import UPDATES
from fleetui.changes import noticed_changes
from fleetui.hub_backend import live_backend
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.task_queue import HEARTBEAT_PERIOD, record_end, record_heartbeat, send_now
from fleetui.threads import brief_connection
from placements.services import assertions, checks, pruning, scheduling, verification
from placements.services.decisions import exact
from placements.services.disruption.drains import advance_drains
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.loss import report as resilience
from placements.services.notifications.evaluation import evaluate
from placements.services.notifications.sending import send_due
from placements.services.rollouts import controller, removals, worker
from placements.services.workqueue import count_waiting

log = logging.getLogger(__name__)

LONGEST = 2.0
"""Seconds after which a task starts no further batch and lets others have its place in the worker."""

PRUNING_SECONDS = 0.5
RARELY = 5
"""At this interval of sweeps, work that no user waits for is enqueued, too."""
_sweeps = count()


@worker_ready.connect
@in_hub(LOCAL_HUB)
@noticed_changes(by_request=False)
def worker_is_ready(**_signal: Any) -> None:
    verification.reschedule_unreadable_decisions()


@worker_ready.connect
def start_heartbeat(sender: Any, **_signal: Any) -> None:
    """Record heartbeats by the timer of the worker: tasks that take long do not delay them."""
    queues = [queue.name for queue in sender.task_consumer.queues]
    heartbeat(queues)
    sender.timer.call_repeatedly(HEARTBEAT_PERIOD.total_seconds(), heartbeat, (queues,))


@in_hub(LOCAL_HUB)
def heartbeat(queues: Collection[str]) -> None:
    """Record that this worker is alive, and how many updates wait for one."""
    now = datetime.now(UTC)
    try:
        with brief_connection():
            waiting = count_waiting(now=now) if UPDATES in queues else 0
            record_heartbeat(queues, waiting=waiting, now=now)
    except DatabaseError as error:  # the next one may succeed
        log.warning("heartbeat not recorded: %s", error)


@shared_task(acks_late=True, bind=True)
def schedule_due(self: Task[..., None], **_newer: Any) -> None:
    if repeat(scheduling.schedule_due):
        send_now(self.name, {})
    repeat(assertions.check_due)


@shared_task(acks_late=True)
def check_assertions(**_newer: Any) -> None:
    repeat(assertions.check_due)


@shared_task(acks_late=True)
def check_findings(**_newer: Any) -> None:
    repeat(checks.check_due)


@shared_task(acks_late=True)
def fleet_changed(**_newer: Any) -> None:
    enqueue_affected_placements()
    advance_drains(now=datetime.now(UTC))  # of clusters that left
    if repeat(scheduling.schedule_due):
        send_now(schedule_due.name, {})


@shared_task(acks_late=True, bind=True)
def sync_due_rollouts(self: Task[..., None], **_newer: Any) -> None:
    if repeat(controller.sync_due_rollouts):
        send_now(self.name, {})


@shared_task(acks_late=True, bind=True)
def run_cluster_calls(self: Task[..., None], **_newer: Any) -> None:
    if repeat(worker.run_cluster_calls):
        send_now(self.name, {})


@shared_task(acks_late=True)
def search_exactly(*, search: str, hub: int, **_newer: Any) -> None:
    with in_hub(hub):
        exact.search_requested(search)


@shared_task(acks_late=True, bind=True)
def evaluate_resilience(self: Task[..., None], **_newer: Any) -> None:
    if repeat(resilience.evaluate_due):
        send_now(self.name, {})


@shared_task(acks_late=True)
def refresh_staleness(**_newer: Any) -> None:
    verification.refresh_staleness(now=datetime.now(UTC))


@shared_task(acks_late=True)
def verify(**_newer: Any) -> None:
    verification.verify_due(now=datetime.now(UTC))


@shared_task(acks_late=True)
def remove_orphans(**_newer: Any) -> None:
    repeat(removals.remove_orphans)


@shared_task(acks_late=True)
def prune(**_newer: Any) -> None:
    """Prune for a moment: the sweep sends the next hint while there is more, and others write meanwhile."""
    pruning.prune(now=datetime.now(UTC), seconds=PRUNING_SECONDS)


@shared_task(acks_late=True)
def notify(**_newer: Any) -> None:
    """Compare the problems with those known, and send messages; what is not sent now is at the next time."""
    evaluate(now=datetime.now(UTC))
    repeat(send_due)


@shared_task(acks_late=True)
def sweep(**_newer: Any) -> None:
    """Send hints for the work that is due, whose own may be lost; advance drains."""
    enqueue_affected_placements()
    repeat(advance_drains)
    due = {
        schedule_due: scheduling.is_due,
        sync_due_rollouts: controller.is_due,
        run_cluster_calls: worker.is_due,
        check_assertions: assertions.is_due,
        refresh_staleness: verification.freshness_due,
    }
    if next(_sweeps) % RARELY == 0:
        due |= {
            remove_orphans: removals.is_due,
            evaluate_resilience: resilience.is_due,
            check_findings: checks.is_due,
            verify: verification.verification_due,
            prune: pruning.is_pruning_due,
        }
    for task, is_task_due in due.items():
        if is_task_due(now=datetime.now(UTC)):
            send_now(task.name, {})
    for name, arguments in live_backend().due_tasks(datetime.now(UTC)):
        send_now(name, arguments)
    record_end("swept_at", now=datetime.now(UTC))


def repeat(step: Callable[..., int]) -> bool:
    """Repeat a step until nothing is due or the time is over; return whether more may be due."""
    started = monotonic()
    while monotonic() - started < LONGEST:
        if not step(now=datetime.now(UTC)):
            return False
    return True
