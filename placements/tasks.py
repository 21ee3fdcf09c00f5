"""Background tasks: thin, level-triggered, safe to run twice or in two workers at once."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from fleetui.task_queue import record_heartbeat
from placements.services import scheduling, verification
from placements.services.disruption.drains import advance_drains
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.rollouts import controller, worker
from placements.services.what_if.operations import evaluate_due, is_due


@worker_ready.connect
def worker_is_ready(**_signal: Any) -> None:
    verification.ask_what_another_engine_decided()


@shared_task(acks_late=True)
def schedule_due(**_newer: Any) -> None:
    _repeat(scheduling.schedule_due)


@shared_task(acks_late=True)
def fleet_changed(**_newer: Any) -> None:
    enqueue_affected_placements()
    _repeat(scheduling.schedule_due)


@shared_task(acks_late=True)
def sync_due_rollouts(**_newer: Any) -> None:
    _repeat(controller.sync_due_rollouts)


@shared_task(acks_late=True)
def run_cluster_calls(**_newer: Any) -> None:
    _repeat(worker.run_cluster_calls)


@shared_task(acks_late=True)
def evaluate_scenarios(**_newer: Any) -> None:
    _repeat(evaluate_due)


@shared_task(acks_late=True)
def refresh_staleness(**_newer: Any) -> None:
    verification.refresh_staleness(now=datetime.now(UTC))


@shared_task(acks_late=True)
def verify(**_newer: Any) -> None:
    verification.verify_due(now=datetime.now(UTC))


@shared_task(acks_late=True)
def sweep(**_newer: Any) -> None:
    """Find and do work whose message was lost; long work has its own task."""
    record_heartbeat(now=datetime.now(UTC))
    enqueue_affected_placements()
    _repeat(advance_drains)
    _repeat(scheduling.schedule_due)
    _repeat(controller.sync_due_rollouts)
    run_cluster_calls.apply_async(expires=1)
    if is_due(now=datetime.now(UTC)):
        evaluate_scenarios.apply_async(expires=1)
    if verification.freshness_due(now=datetime.now(UTC)):
        refresh_staleness.apply_async(expires=1)
    if verification.verification_due(now=datetime.now(UTC)):
        verify.apply_async(expires=1)


def _repeat(step: Callable[..., int]) -> None:
    while step(now=datetime.now(UTC)):
        pass
