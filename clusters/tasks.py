"""The clock of the fleet: look at the clusters that are due, let go of those that left."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task

from clusters.operations.leaving import finish_leaving
from clusters.operations.observing import observe as observe_fleet


@shared_task
def observe(**_newer: Any) -> None:
    """Observe, judge, and finish farewells; safe to run twice."""
    now = datetime.now(UTC)
    observe_fleet(now=now)
    finish_leaving(now=now)
