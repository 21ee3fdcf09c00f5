"""Periodic tasks of the fleet."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task

from clusters.operations.connection import renew_due
from clusters.operations.credentials import notify_expiring
from clusters.operations.edit import finish_leaving
from clusters.operations.heartbeat import observe as observe_fleet
from clusters.operations.join import CLUSTER
from fleetui.task_queue import record_end


@shared_task
def observe(**_newer: Any) -> None:
    """Observe due clusters, refresh eligibility, finish removals, renew credentials; safe to run twice."""
    now = datetime.now(UTC)
    observe_fleet(now=now)
    record_end("observed_at", now=datetime.now(UTC))
    finish_leaving(now=now)
    renew_due(now=now)
    notify_expiring(CLUSTER, now=now)
