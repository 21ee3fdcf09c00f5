"""Periodic tasks of the fleet."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task

from clusters.hubs.operations import delete_removed_hubs, notify_expiring_hubs
from clusters.hubs.writing.sending import resolve_writes
from clusters.operations.credential_renewal import notify_expiring, renew_due
from clusters.operations.heartbeat import observe as observe_fleet
from clusters.operations.leave import finish_leaving
from fleetui.task_queue import record_end


@shared_task
def resolve_hub_writes(**_newer: Any) -> None:
    """Resolve writes to live hubs whose answer is lost, by reading the objects back."""
    resolve_writes(now=datetime.now(UTC))


@shared_task
def observe(**_newer: Any) -> None:
    """Observe due clusters, refresh eligibility, finish removals, renew credentials; safe to run twice.

    The mirror of a removed hub is deleted here, too, a part at a time.
    """
    now = datetime.now(UTC)
    observe_fleet(now=now)
    record_end("observed_at", now=datetime.now(UTC))
    finish_leaving(now=now)
    renew_due(now=now)
    notify_expiring(now=now)
    notify_expiring_hubs(now=now)
    delete_removed_hubs()
