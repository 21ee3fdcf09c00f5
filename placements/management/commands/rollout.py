"""manage.py rollout: manage the rollout of a placement from the command line."""

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from placements.explain.rollouts import (
    eta_document,
    result_sentences,
)
from placements.management.rollout_command import RolloutCommand
from placements.services.actions import ActionKind
from placements.services.health import health_of
from placements.services.history.queries import revision_number_of
from placements.services.results import get_placement
from placements.services.roll_back import roll_back_to
from placements.services.rollouts.queries import latest_run, progress_words, report_of

_LONGEST = 10
"""Digits of a revision."""


class Command(RolloutCommand):
    """Manage a rollout."""

    help = "Manage the rollout of a placement: pause, resume, stop, start, unpin, roll back, retry a cluster."
    kind = ActionKind.ROLLING

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
        self.add_actions(subparsers, target="NAME")
        status: ArgumentParser = subparsers.add_parser(
            "status", help="Show the latest rollout as JSON"
        )
        status.add_argument("target", metavar="NAME")

    def handle(self, *, action: str, target: str, **options: Any) -> None:
        now = datetime.now(UTC)
        value = options.get("value", "")
        if action == "status":
            self.stdout.write(_status(target, now=now))
        elif action == "roll-back" and value.isdecimal() and len(value) < _LONGEST:
            done = roll_back_to(target, int(value), by=None, now=now)
            self.stdout.write(done.message(target))
        else:
            self.stdout.write(self.run_action(options["name"], target, value))


def _status(name: str, *, now: datetime) -> str:
    row = get_placement(name)
    run = latest_run(row)
    if run is None:
        return f"{name} has no rollout yet"
    result = report_of(run).result
    document = {
        "revision": revision_number_of(row),
        "pausedBy": row.paused_by or None,
        "run": run.number,
        "state": run.state,
        "health": health_of(row, now=now).summary,
        "progress": progress_words(run) or None,
        "stopped": row.is_stopped,
        "heldAt": row.pinned_snapshot,
        "endedBecause": run.ended_reason or None,
        "eta": eta_document(
            run.eta, started_at=run.started_at, ended_at=run.ended_at, now=now
        ),
        **(result_sentences(result, is_initial=run.is_initial) if result else {}),
    }
    return json.dumps(document, ensure_ascii=False, indent=2)
