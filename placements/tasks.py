"""The tasks of scheduling: thin, level-triggered, safe to run twice or in two workers at once."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from celery.signals import worker_ready

from fleetui.pulse import beat
from placements.operations.fleet_changes import ask_those_concerned
from placements.operations.freshness import freshness_due, look_at_freshness
from placements.operations.rollouts.advancing import advance_due as advance_those_due
from placements.operations.rollouts.carrying_out import carry_out_due as carry_out_those_due
from placements.operations.rollouts.draining import advance_drains
from placements.operations.scenarios import answer_due, is_due
from placements.operations.scheduling import schedule_due as schedule_those_due
from placements.operations.verifying import ask_what_another_engine_decided, verification_due, verify_due


@worker_ready.connect
def worker_is_ready(**_signal: Any) -> None:
    """Have what another engine decided decided anew: a new engine comes with a new worker."""
    ask_what_another_engine_decided()


@shared_task(acks_late=True)
def schedule_due(**_newer: Any) -> None:
    """Run the scheduling cycles that are due."""
    _repeat(schedule_those_due)


@shared_task(acks_late=True)
def fleet_changed(**_newer: Any) -> None:
    """Ask the placements that a change of the fleet concerns, and decide them."""
    ask_those_concerned()
    _repeat(schedule_those_due)


@shared_task(acks_late=True)
def advance_due(**_newer: Any) -> None:
    """Look at the rollouts that are due, and start what may start."""
    _repeat(advance_those_due)


@shared_task(acks_late=True)
def carry_out_due(**_newer: Any) -> None:
    """Make the calls to clusters that are due."""
    _repeat(carry_out_those_due)


@shared_task(acks_late=True)
def what_if(**_newer: Any) -> None:
    """Answer the scenarios that are due."""
    _repeat(answer_due)


@shared_task(acks_late=True)
def freshness(**_newer: Any) -> None:
    """Work out which picks are stale."""
    look_at_freshness(now=datetime.now(UTC))


@shared_task(acks_late=True)
def verify(**_newer: Any) -> None:
    """Decide stored decisions again, those that were not verified for a day."""
    verify_due(now=datetime.now(UTC))


@shared_task(acks_late=True)
def sweep(**_newer: Any) -> None:
    """Find what a lost message left, and do it; what takes long has a task of its own."""
    beat(now=datetime.now(UTC))
    ask_those_concerned()
    _repeat(advance_drains)
    _repeat(schedule_those_due)
    _repeat(advance_those_due)
    carry_out_due.apply_async(expires=1)
    if is_due(now=datetime.now(UTC)):
        what_if.apply_async(expires=1)
    if freshness_due(now=datetime.now(UTC)):
        freshness.apply_async(expires=1)
    if verification_due(now=datetime.now(UTC)):
        verify.apply_async(expires=1)


def _repeat(step: Callable[..., int]) -> None:
    while step(now=datetime.now(UTC)):
        pass
