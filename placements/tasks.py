"""The tasks of scheduling: thin, level-triggered, safe to run twice or in two workers at once."""

from datetime import UTC, datetime
from typing import Any

from celery import shared_task

from placements.operations.fleet_changes import ask_those_concerned
from placements.operations.scheduling import schedule_due as schedule_those_due


@shared_task(acks_late=True)
def schedule_due(**_newer: Any) -> None:
    """Run the scheduling cycles that are due."""
    _schedule_all()


@shared_task(acks_late=True)
def fleet_changed(**_newer: Any) -> None:
    """Ask the placements that a change of the fleet concerns, and decide them."""
    ask_those_concerned()
    _schedule_all()


@shared_task(acks_late=True)
def sweep(**_newer: Any) -> None:
    """Find what a lost message left, and do it."""
    ask_those_concerned()
    _schedule_all()


def _schedule_all() -> None:
    while schedule_those_due(now=datetime.now(UTC)):
        pass
