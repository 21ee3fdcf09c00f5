"""manage.py resilience: compute and print what the loss of every cluster and every domain does."""

import json
import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from placements.engine.resilience import LossVariant
from placements.explain.resilience import METRICS, VARIANT_NAMES, worst_by_level
from placements.services.resilience.operations import compute_now, start_report

HOLDS = 1
_CONDITION = re.compile(rf"({'|'.join(METRICS)})\s*>\s*(\d{{1,9}})\s+of\s+(\S+)")


class FailOn(NamedTuple):
    """A condition such as `unfulfilled>0 of region`, about the worst loss of a level."""

    metric: str
    limit: int
    level: str


def condition(text: str) -> FailOn:
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text[:63]!r} is not METRIC>NUMBER of LEVEL; metrics: {', '.join(METRICS)}")
    return FailOn(match[1], int(match[2]), match[3])


class Command(HubCommand):
    """Compute a resilience report now, and print it."""

    help = "Show what the loss of every cluster and domain does. Exit status 1: a --fail-on condition holds."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--keys", default="", metavar="KEY,…", help="topology keys (default: those in use)")
        variants = [str(one) for one in LossVariant]
        add("--variant", action="append", choices=variants, help="default: all (repeatable)")
        add(
            "--fail-on",
            action="append",
            type=condition,
            default=[],
            metavar="CONDITION",
            help='such as "unfulfilled>0 of region" (repeatable)',
        )
        add("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, keys: str, variant: list[str] | None, output: str, **options: Any) -> None:
        now = datetime.now(UTC)
        levels = [one for one in keys.split(",") if one]
        report = compute_now(start_report(keys=levels, variants=variant or (), by=None, now=now), now=now)
        if output == "json":
            document = {"keys": report.keys, "fleetVersion": report.fleet_version, "totals": report.totals}
            self.stdout.write(json.dumps(document, indent=2))
        else:
            for one in report.variants:
                self.stdout.write(f"{VARIANT_NAMES[one]}:")
                for worst in worst_by_level(report.totals, one):
                    self.stdout.write(f"  {worst.sentence}")
        unknown = [one.level for one in options["fail_on"] if one.level not in report.totals]
        if unknown:
            message = f"--fail-on: no level {unknown[0]!r}; levels: {', '.join(report.totals)}"
            raise CommandError(message, returncode=BAD_INPUT)
        for each in options["fail_on"]:
            for one in report.variants:
                worst = report.totals[each.level][one].get(each.metric, {"count": 0, "value": ""})
                if worst["count"] > each.limit:
                    where = f"{each.level} {worst['value']}, {one}"
                    breach = f"{each.metric} {worst['count']} > {each.limit} ({where})"
                    raise CommandError(f"--fail-on: {breach}", returncode=HOLDS)
