"""manage.py apply -f FILE: resources, member clusters, placements, budgets, evictions."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.yaml import Document
from fleetui.errors import UNCONFIRMED
from fleetui.remote import RemoteClient, RemoteError
from placements.engine.limits import ExceededLimit
from placements.explain.terminal import next_decision_line
from placements.management.manifest_command import ManifestCommand
from placements.services.apply import (
    PartlyApplied,
    Result,
    apply_documents,
    preview_documents,
)
from placements.services.placements import UnschedulesEverything
from placements.services.results import CONFIRMATION

DRY_RUN = " (dry run)"
_LIMIT = (
    "topologyKey",
    "maxSkew",
    "fullestDomain",
    "fullestCount",
    "emptiestDomain",
    "emptiestCount",
    "skew",
)
"""The fields of an exceeded limit that a console sends."""


def _result(plain: Mapping[str, Any]) -> Result:
    """Return a result that a console has sent."""
    warnings = tuple(ManifestWarning(**warning) for warning in plain["warnings"])
    return Result(
        plain["kind"], plain["name"], plain["did"], warnings, plain["message"]
    )


def unconfirmed(error: UnschedulesEverything) -> CommandError:
    return CommandError(f"{error} (--confirm {CONFIRMATION})", returncode=UNCONFIRMED)


class Command(ManifestCommand):
    """Apply manifests to the hub."""

    help = (
        "Apply manifests of all supported kinds: up to 500 documents all or none, more in batches. "
        "Exit status: 0 applied, 1 refused, 2 invalid input, 3 confirmation missing, 4 the database or the "
        "console does not respond."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--confirm",
            choices=[CONFIRMATION],
            help="continue even if a placement would be removed from all clusters",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="validate everything and show results and decisions; write nothing",
        )

    def run_on(
        self,
        documents: list[Document],
        *,
        confirm: str | None = None,
        strict: bool = False,
        dry_run: bool = False,
        **_options: Any,
    ) -> None:
        confirmed, now = confirm is not None, datetime.now(UTC)
        try:
            if not dry_run:
                self._print(
                    apply_documents(
                        documents, by=None, now=now, confirmed=confirmed, strict=strict
                    )
                )
                return
            preview = preview_documents(
                documents, by=None, now=now, confirmed=confirmed, strict=strict
            )
        except PartlyApplied as error:
            self._print(error.results)
            self.stderr.write(str(error))
            if isinstance(error.cause, UnschedulesEverything):
                raise unconfirmed(error.cause) from error
            raise error.cause from error
        except UnschedulesEverything as error:
            raise unconfirmed(error) from error
        self._print(preview.results, suffix=DRY_RUN)
        lines = [
            next_decision_line(
                row.placement,
                joins=row.joins,
                leaves=row.leaves,
                count=row.placed_after,
                is_fulfilled=row.is_fulfilled,
                exceeded=row.exceeded_limits,
            )
            for row in preview.impact.rows
        ]
        self._print_decisions(lines, not_evaluated=preview.impact.not_evaluated)

    def run_remotely(
        self,
        client: RemoteClient,
        manifests: bytes,
        *,
        confirm: str | None = None,
        strict: bool = False,
        dry_run: bool = False,
        **_options: Any,
    ) -> None:
        query = {
            "confirm": confirm or "",
            "strict": "true" if strict else "",
            "dryRun": "All" * dry_run,
        }
        parameters = {name: value for name, value in query.items() if value}
        try:
            answer = client.request("POST", "apply", query=parameters, body=manifests)
        except RemoteError as error:
            self._print(map(_result, error.applied))
            if error.applied:
                self.stderr.write(str(error))
            raise
        self._print(map(_result, answer["items"]), suffix=DRY_RUN * dry_run)
        lines = [
            next_decision_line(
                one["placement"],
                joins=one["joins"],
                leaves=one["leaves"],
                count=one["placedAfter"],
                is_fulfilled=one["isFulfilled"],
                exceeded=[
                    ExceededLimit(*map(limit.get, _LIMIT))
                    for limit in one["exceededLimits"]
                ],
            )
            for one in answer.get("decisions", ())
        ]
        self._print_decisions(lines, not_evaluated=answer.get("notEvaluated", 0))

    def _print_decisions(self, lines: Iterable[str], *, not_evaluated: int) -> None:
        for line in lines:
            self.stdout.write(line)
        if not_evaluated:
            self.stdout.write(f"{not_evaluated} more placements not evaluated")

    def _print(self, results: Iterable[Result], *, suffix: str = "") -> None:
        for result in results:
            detail = f": {result.message}" if result.message else ""
            self.stdout.write(
                f"{result.kind} {result.name} {result.did}{suffix}{detail}"
            )
            for warning in result.warnings:
                self.stderr.write(f"  warning: {warning.path}: {warning.message}")
