"""manage.py removals [CLUSTER]: list the removals that wait for a person, confirm one or keep the objects."""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from placements.services.rollouts.removals import (
    confirm_removal,
    keep_objects,
    waiting_removals,
)


class Command(HubCommand):
    """List the removals that wait for a person, or decide one."""

    help = "List the removals from clusters that no user requested and that wait for a person, or decide one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER", nargs="?", default="")
        decision = parser.add_mutually_exclusive_group()
        decision.add_argument(
            "--confirm",
            metavar="PLACEMENT",
            help="remove what is there of this placement",
        )
        decision.add_argument(
            "--keep", metavar="PLACEMENT", help="leave what is there of this placement"
        )

    def handle(
        self, *, cluster: str, confirm: str | None, keep: str | None, **_options: Any
    ) -> None:
        placement = confirm or keep
        if placement and not cluster:
            raise CommandError(
                "CLUSTER is required with --confirm and --keep", returncode=BAD_INPUT
            )
        now = datetime.now(UTC)
        if confirm:
            confirm_removal(cluster, confirm, by=None, now=now)
            self.stdout.write(f"Removal of {confirm} from {cluster} confirmed")
        elif keep:
            keep_objects(cluster, keep, by=None, now=now)
            self.stdout.write(f"The objects of {keep} stay on {cluster}")
        else:
            found = waiting_removals(cluster)
            lines = [
                f"{one.cluster_name}  {one.placement_name}  {one.reason}"
                for one in found
            ]
            self.stdout.write("\n".join(lines) or "No removal waits for a decision")
