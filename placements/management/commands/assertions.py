"""manage.py assertions: check the assertions of placements now, and print them."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import BAD_INPUT, HubCommand
from placements.services.assertions import check_due, checks
from placements.services.results import UnknownPlacementError, get_placement

BROKEN, UNKNOWN = 1, 3


class Command(HubCommand):
    """Check the assertions of placements now, and print them."""

    help = "Check the assertions of placements. Exit status: 1 one is broken, 3 one is unknown."
    exit_codes = {UnknownPlacementError: BAD_INPUT}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="only these placements")
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, names: list[str], output: str, **_options: Any) -> None:
        """Print a line for each assertion, or JSON."""
        for name in names:
            get_placement(name)
        while check_due(now=datetime.now(UTC)):
            pass
        rows = [one for one in checks() if not names or one.placement.full_name in names]
        if output == "json":
            items = [{"placement": one.placement.full_name, "assertions": one.results} for one in rows]
            self.stdout.write(json.dumps({"items": items}, indent=2))
        else:
            for one in rows:
                for each in one.results:
                    details = ", ".join(each["evidence"]) or each["reason"]
                    line = f"{one.placement.full_name}: {each['state']}: {each['name']}"
                    self.stdout.write(f"{line} ({details})" if details else line)
        if any(one.broken for one in rows):
            raise CommandError("an assertion is broken", returncode=BROKEN)
        if any(one.unknown for one in rows):
            raise CommandError("an assertion is unknown", returncode=UNKNOWN)
