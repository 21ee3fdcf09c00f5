"""manage.py what_if: print what the loss of clusters does to placements."""

import json
import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.words import counted
from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from placements.engine.loss import LossVariant
from placements.explain.loss import (
    METRICS,
    VARIANT_NAMES,
    impacts_sentence,
    worst_by_level,
)
from placements.services.loss.evaluation import chosen_clusters, losses
from placements.services.loss.report import compute_now, start_report

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
        raise ArgumentTypeError(
            f"{text[:63]!r} is not METRIC>NUMBER of LEVEL; metrics: {', '.join(METRICS)}"
        )
    return FailOn(match[1], int(match[2]), match[3])


class Command(HubCommand):
    """Print what the loss of clusters does: of those that are chosen, or of every one and every domain."""

    help = (
        "Show what the loss of the chosen clusters does, or else of every cluster and every domain. "
        "Exit status 1: a --fail-on condition holds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "--cluster",
            action="append",
            default=[],
            metavar="NAME",
            help="a lost cluster (repeatable)",
        )
        add(
            "--label",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="a label of all lost clusters (repeatable)",
        )
        add(
            "--keys",
            default="",
            metavar="KEY,…",
            help="topology keys (default: those in use)",
        )
        variants = [str(one) for one in LossVariant]
        add(
            "--variant",
            action="append",
            choices=variants,
            help="default: all (repeatable)",
        )
        add(
            "--fail-on",
            action="append",
            type=condition,
            default=[],
            metavar="CONDITION",
            help='such as "unfulfilled>0 of region" (repeatable)',
        )
        add("-o", "--output", choices=["table", "json"], default="table")

    def handle(self, *, cluster: list[str], label: list[str], **options: Any) -> None:
        variants = options["variant"] or list(LossVariant)
        if not cluster and not label:
            self._print_report(variants, **options)
            return
        impacts = losses(
            chosen_clusters(cluster, [one.replace("=", ":", 1) for one in label])
        )
        for variant in map(LossVariant, variants):
            impact = impacts[variant]
            self.stdout.write(
                f"{VARIANT_NAMES[variant]}: {impacts_sentence(impact.counts)}"
            )
            for row in impact.rows:
                counts = (
                    f"{row.placed_before} to {counted(row.placed_after, 'cluster')}"
                )
                self.stdout.write(
                    f"  {row.placement}: {counts}. {row.message}".rstrip()
                )
            if impact.not_evaluated:
                self.stdout.write(
                    f"  {impact.not_evaluated} more placements not evaluated"
                )

    def _print_report(
        self,
        variants: list[str],
        *,
        keys: str,
        output: str,
        fail_on: list[FailOn],
        **_: Any,
    ) -> None:
        now = datetime.now(UTC)
        levels = [one for one in keys.split(",") if one]
        report = compute_now(
            start_report(keys=levels, variants=variants, by=None, now=now), now=now
        )
        if output == "json":
            document = {
                "keys": report.keys,
                "fleetVersion": report.fleet_version,
                "totals": report.totals,
            }
            self.stdout.write(json.dumps(document, indent=2))
        else:
            for variant in report.variants:
                self.stdout.write(f"{VARIANT_NAMES[variant]}:")
                for worst in worst_by_level(report.totals, variant):
                    self.stdout.write(f"  {worst.sentence}")
        for wanted in fail_on:
            if wanted.level not in report.totals:
                message = f"--fail-on: no level {wanted.level!r}; levels: {', '.join(report.totals)}"
                raise CommandError(message, returncode=BAD_INPUT)
        for wanted in fail_on:
            for variant in report.variants:
                worst = report.totals[wanted.level][variant].get(
                    wanted.metric, {"count": 0, "value": ""}
                )
                if worst["count"] > wanted.limit:
                    where = f"{wanted.level} {worst['value']}, {variant}"
                    breach = (
                        f"{wanted.metric} {worst['count']} > {wanted.limit} ({where})"
                    )
                    raise CommandError(f"--fail-on: {breach}", returncode=HOLDS)
