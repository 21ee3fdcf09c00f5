"""manage.py judge_hub: compare what a live hub decided with replays; the hub is not contacted."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.hub_queries import live_hub
from fleetui.hub_scope import in_hub
from fleetui.management.hub_command import HubCommand
from placements.hubs.explain.agreements import agreement_document
from placements.hubs.replay.judgements import judge_now
from placements.hubs.replay.queries import agreements
from placements.models import Agreement, HubDecision
from placements.services.results import get_placement

DIFFERS = 1


class Command(HubCommand):
    """Judge the decisions of a live hub now, and print how they agree."""

    help = "Compare what a live hub decided with replays. Exit status 1 if a replay differs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the hub")
        parser.add_argument("--placement", default="", help="only this placement")
        parser.add_argument("-o", "--output", choices=["json"], default="", help="print documents")

    def handle(self, *, name: str, placement: str, output: str, **_options: Any) -> None:
        hub = live_hub(name)
        with in_hub(hub.pk):
            if placement:
                get_placement(placement)
            judge_now(placement=placement, now=datetime.now(UTC))
            rows: list[HubDecision] = list(agreements(placement=placement).order_by("placement_name"))
            if output:
                self.stdout.write(json.dumps({"items": [agreement_document(one) for one in rows]}, indent=2))
            else:
                for one in rows:
                    note = f"  {one.note}" if one.note else ""
                    self.stdout.write(f"{one.placement_name:40} {one.agreement:16} {one.inputs}{note}")
        if any(one.agreement == Agreement.DIFFERS for one in rows):
            raise CommandError("a replay differs from the hub", returncode=DIFFERS)
