"""manage.py rebalance PLACEMENT: show the plan that repairs a placement with few moves, or start it."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.explain.rebalance import plan_document, plan_lines
from placements.services.rebalance import preview_rebalance, start_plan
from placements.services.results import get_placement

NOT_DONE, UNSAFE = 1, 3


class Command(HubCommand):
    """Rebalance a placement with few moves."""

    help = (
        "Show the plan that repairs the limits of a placement with few moves, or start it. Exit status 3: a"
        " step would break a limit on the way."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("placement", metavar="PLACEMENT")
        parser.add_argument("--moves", type=int, metavar="K", help="maximum of moves (default: the fewest)")
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--dry-run", action="store_true", help="only show the plan (default)")
        how.add_argument("--start", action="store_true", help="start the plan")
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, placement: str, moves: int | None, output: str, **options: Any) -> None:
        row = get_placement(placement)
        preview = preview_rebalance(row, moves=moves)
        if preview.plan is None:
            raise CommandError(preview.refusal, returncode=NOT_DONE)
        if output == "json":
            document = plan_document(preview.plan, preview.batches, refusal=preview.refusal, hub=preview.hub)
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            self.stdout.write("\n".join(plan_lines(preview.plan, preview.batches, hub=preview.hub)))
        if options["start"]:
            plan = start_plan(row.full_name, moves=moves, by=None, now=datetime.now(UTC))
            self.stderr.write(f"Rebalance plan {plan.number} of {row.full_name} started.")
        elif not preview.plan.is_safe:
            raise CommandError(preview.refusal, returncode=UNSAFE)
