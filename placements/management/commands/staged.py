"""manage.py staged: list, preview, start and manage staged update runs from the command line."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import BAD_INPUT, REFUSED
from placements.management.rollout_command import RolloutCommand, revision_number
from placements.models import StagedRun, StagedStrategy
from placements.services.actions import ActionKind
from placements.services.results import get_placement
from placements.services.rollouts.queries import (
    progress_document,
    runs_matching,
    staged_run_named,
)
from placements.services.rollouts.staged_runs import start_run
from placements.services.rollouts.stages import (
    preview_of,
)


class Command(RolloutCommand):
    """Manage staged update runs."""

    help = "List, preview, start and manage staged update runs, approve their stages, show their progress."
    kind = ActionKind.STAGED

    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
        runs = subparsers.add_parser("list", help="List runs, the newest first")
        runs.add_argument(
            "--placement",
            default="",
            metavar="NAME",
            help="only runs of this placement",
        )
        runs.add_argument(
            "--active", action="store_true", help="only runs that have not ended"
        )
        for action, words in (
            ("preview", "Preview the stages with their clusters"),
            ("start", "Start a run"),
        ):
            subparser = subparsers.add_parser(action, help=words)
            if action == "start":
                subparser.add_argument("run", metavar="RUN", help="name of the run")
                subparser.add_argument(
                    "--prepare",
                    action="store_true",
                    help="create the run without starting it",
                )
            subparser.add_argument("placement", metavar="PLACEMENT")
            subparser.add_argument("strategy", metavar="STRATEGY")
            subparser.add_argument(
                "--snapshot", metavar="NUMBER", help="older resources, such as 4, or r4"
            )
        status = subparsers.add_parser(
            "status", help="Show the progress of RUN as JSON"
        )
        status.add_argument("target", metavar="RUN")
        self.add_actions(subparsers, target="RUN")

    def handle(self, *, action: str, **options: Any) -> None:
        if action == "list":
            rows = runs_matching(StagedRun, placement=options["placement"])
            if options["active"]:
                rows = rows.filter(ended_at=None)
            lines = [
                f"{run.full_name} of {run.placement_name}: {run.status}"
                for run in rows.order_by("-id")
            ]
            self.stdout.write("\n".join(lines) or "No staged update runs.")
        elif action == "preview":
            self._preview(
                options["placement"], options["strategy"], options["snapshot"]
            )
        elif action == "start":
            run = start_run(
                options["run"],
                placement=options["placement"],
                strategy=options["strategy"],
                snapshot=None
                if options["snapshot"] is None
                else revision_number(options["snapshot"]),
                is_prepared=options["prepare"],
                by=None,
                now=datetime.now(UTC),
            )
            done = (
                "created; start it with `staged resume`"
                if options["prepare"]
                else "started"
            )
            self.stdout.write(f"Staged update run {run.full_name} {done}.")
        elif action == "status":
            progress = progress_document(staged_run_named(options["target"]))
            self.stdout.write(json.dumps(progress, ensure_ascii=False, indent=2))
        else:
            value, user = options.get("value", ""), options.get("user", "")
            more = {"comment": options["comment"]} if "comment" in options else {}
            self.stdout.write(
                self.run_action(options["name"], options["target"], value, user, **more)
            )

    def _preview(
        self,
        placement: str,
        strategy: str,
        snapshot: str | None,
    ) -> None:
        placement_row = get_placement(placement)
        row = StagedStrategy.objects.filter(
            namespace=placement_row.namespace, name=strategy
        ).first()
        if row is None:
            raise CommandError(
                f"no staged update strategy is named {strategy!r}", returncode=BAD_INPUT
            )
        number = None if snapshot is None else revision_number(snapshot)
        preview = preview_of(placement_row, row, number, now=datetime.now(UTC))
        if preview.problems:
            raise CommandError("\n".join(preview.problems), returncode=REFUSED)
        for count, one in enumerate(preview.stages, 1):
            names = ", ".join(one.clusters) or "none"
            self.stdout.write(
                f"{count}. {one.words.name} (max {one.words.at_once} at a time): {names}"
            )
        if preview.deletions:
            self.stdout.write(
                f"{len(preview.stages) + 1}. removals: {', '.join(preview.deletions)}"
            )
