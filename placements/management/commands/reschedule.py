"""manage.py reschedule PLACEMENT: reschedule a placement all at once, or with few moves."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from fleetui.apimachinery.words import joined
from fleetui.management.hub_command import HubCommand
from placements.explain.moves import plan_lines
from placements.services.disruption.restore import fresh_schedule
from placements.services.loss.evaluation import impact_of_decision
from placements.services.rescheduling import (
    FEWEST,
    moves_from,
    plan_few_moves,
    reschedule,
    reschedule_with_few_moves,
)
from placements.services.results import CONFIRMATION, get_placement
from placements.services.rollouts.operations import check_possible


class Command(HubCommand):
    """Reschedule a placement."""

    help = "Reschedule a placement: all at once, or to the best clusters that few moves reach."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("placement", metavar="PLACEMENT")
        parser.add_argument(
            "--moves",
            metavar="K",
            help=f"maximum of moves, or {FEWEST}; a move is one cluster that leaves",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="only show what would change"
        )
        parser.add_argument(
            "--confirm",
            choices=[CONFIRMATION],
            help="continue even if the placement would be removed from all clusters",
        )

    def handle(
        self,
        *,
        placement: str,
        moves: str | None,
        dry_run: bool,
        confirm: str | None,
        **_: Any,
    ) -> None:
        row = get_placement(placement)
        name, now = row.full_name, datetime.now(UTC)
        if moves is None:
            impact = fresh_schedule(row)
            if not dry_run:
                reschedule(name, by=None, now=now, confirmed=confirm is not None)
        else:
            few = plan_few_moves(row, moves_from(moves))
            impact = impact_of_decision(row, few.decision)
            self.stdout.write(
                "\n".join([*plan_lines(few.plan), *filter(None, [few.hub]), ""])
            )
            check_possible("" if dry_run else few.refusal)
            if not dry_run:
                reschedule_with_few_moves(
                    name, moves=moves_from(moves), by=None, now=now
                )
        changes = (("selected", impact.joins), ("deselected", impact.leaves))
        words = [f"{word}: {joined(names)}" for word, names in changes if names]
        done = (
            f"Placement {name} would be rescheduled."
            if dry_run
            else f"Placement {name} rescheduled."
        )
        self.stdout.write(f"{done} {'; '.join(words) or 'No changes'}.")
