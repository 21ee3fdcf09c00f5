"""Background tasks of live hubs: short, level-triggered, safe to run twice or in two workers at once."""

from datetime import UTC, datetime
from typing import Any

from celery import Task, shared_task

from clusters.hub_queries import live_hubs
from clusters.operations.credentials import HUB, notify_expiring
from fleetui.hub_scope import in_hub
from fleetui.task_queue import send_now
from placements.hubs import actions
from placements.hubs.connections.operations import (
    delete_removed_hubs,
)
from placements.hubs.projection.operations import (
    delete_removed_rows,
    project_changes,
    rejudge,
)
from placements.hubs.replay.observed_decisions import observe_due
from placements.hubs.writing.sending import resolve_writes
from placements.services import verification
from placements.tasks import repeat


@shared_task(acks_late=True, bind=True)
def project_hub(self: Task[..., None], *, hub: int, **_newer: Any) -> None:
    with in_hub(hub):
        is_more = repeat(project_changes)
    if is_more:
        send_now(self.name, {"hub": hub})


@shared_task(acks_late=True, bind=True)
def observe_decisions(self: Task[..., None], *, hub: int, **_newer: Any) -> None:
    """Record what a live hub decided: a batch at a time, behind everything that users wait for."""
    with in_hub(hub):
        is_more = observe_due(now=datetime.now(UTC))
    if is_more:
        send_now(self.name, {"hub": hub})


@shared_task(acks_late=True)
def refresh_hubs(**_newer: Any) -> None:
    """Judge the clusters of live hubs again: a heartbeat that becomes too old is no event.

    What a hub has placed is compared with its hard topology limits.

    The rows of removed hubs are deleted here, a part at a time.
    """
    for hub in list(live_hubs().values_list("pk", flat=True)):
        with in_hub(hub):
            rejudge(now=datetime.now(UTC))
            verification.refresh_staleness(now=datetime.now(UTC))
    delete_removed_rows()
    notify_expiring(HUB, now=datetime.now(UTC))
    delete_removed_hubs()


@shared_task(acks_late=True)
def advance_hub_drains(**_newer: Any) -> None:
    """Advance the drains of live hubs; a hub that does not answer delays no other task."""
    actions.advance_hub_drains(now=datetime.now(UTC))


@shared_task
def resolve_hub_writes(**_newer: Any) -> None:
    """Resolve writes whose answer is lost, by reading the objects back."""
    resolve_writes(now=datetime.now(UTC))
