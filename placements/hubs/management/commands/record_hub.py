"""manage.py record_hub NAME --to FILE: record what a live hub delivers, for a bug report or a test."""

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from clusters.hub_queries import live_hub
from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand, duration, stopped_by_signal
from placements.hubs.watching.recording import record_hub

_LONGEST = 24 * 3600


class Command(HubCommand):
    help = "Record the lists and watch events of a hub as JSON lines without secrets; the hub is only read."

    def add_arguments(self, parser: CommandParser) -> None:
        def seconds(text: str) -> float:
            total = duration(text).total_seconds()
            if not 0 < total <= _LONGEST:
                raise ArgumentTypeError(f"{text!r} is not more than 0 and at most 24h")
            return total

        parser.add_argument("name", metavar="NAME")
        parser.add_argument(
            "--to",
            required=True,
            type=Path,
            metavar="FILE",
            help="new file; .gz compresses",
        )
        parser.add_argument(
            "--for",
            dest="seconds",
            type=seconds,
            default=600.0,
            metavar="DURATION",
            help="default: 10m",
        )
        parser.add_argument(
            "--anonymise", action="store_true", help="replace the names of objects"
        )

    def handle(
        self, *, name: str, to: Path, seconds: float, anonymise: bool, **_options: Any
    ) -> None:
        """Record; SIGINT or SIGTERM ends it and keeps what was recorded."""
        hub = live_hub(name)
        try:
            with stopped_by_signal() as stopped:
                report = record_hub(
                    hub, to, stopped, seconds=seconds, is_anonymous=anonymise
                )
        except (FileExistsError, FileNotFoundError, PermissionError) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        for resource, count in sorted(report.events.items()):
            self.stdout.write(f"{resource}  {count} events")
        for resource, problem in sorted(report.errors.items()):
            self.stderr.write(f"{resource}: {problem}")
        self.stdout.write(f"Hub {name} recorded to {to}")
