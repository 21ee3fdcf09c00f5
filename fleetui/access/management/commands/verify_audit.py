"""manage.py verify_audit: check the chain of the access log."""

import re
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.access.audit import verify
from fleetui.errors import BAD_INPUT, REFUSED
from fleetui.management.hub_command import HubCommand

_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{64}|)")


class Command(HubCommand):
    """Verify that no line of the access log was removed or changed."""

    help = "Verify that no line of the access log was removed or changed since it was sealed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--expect",
            metavar="HEAD",
            help="a head that this command printed earlier and that was kept elsewhere",
        )

    def handle(self, *, expect: str | None, **_options: Any) -> None:
        """Print the head. Raise CommandError where a line is missing or differs."""
        match = _HEAD.fullmatch(expect) if expect else None
        if expect and not match:
            raise CommandError("--expect: write a head such as 42:9f86d081…", returncode=BAD_INPUT)
        report = verify(expected=(int(match[1]), match[2]) if match else None)
        self.stdout.write(f"{report.checked} lines verified, {report.unsealed} not sealed yet")
        self.stdout.write(f"head {report.head}")
        if report.errors:
            raise CommandError("\n".join(report.errors), returncode=REFUSED)
