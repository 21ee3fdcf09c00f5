"""manage.py checks: check the policies of placements and the labels of the fleet."""

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui import __version__
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.management.hub_command import HubCommand
from placements.engine.checks.file import NAME, parse_checks_file
from placements.engine.checks.findings import Finding, Severity
from placements.engine.checks.overrides import override_name
from placements.engine.checks.predicates import AssertionResult
from placements.explain.checks import finding_document, finding_lines, findings_sarif
from placements.explain.impact import note_document, notes_sarif
from placements.services.checks import FindingsReport, current_report, examine
from placements.services.impact.compare import assertions_of, compare
from placements.services.impact.sources import (
    DiffSide,
    SourceNote,
    read_checks_file,
    read_files,
)
from placements.services.snapshots import draft_cycle

HAS_FINDINGS, INVALID = 1, 2


class Command(HubCommand):
    """Check the placements of the hub, or those in files."""

    help = (
        "Check policies and labels for what is wrong, without effect or risky. Exit status 1: a finding is as"
        " severe as --fail-on says."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "-f",
            "--filename",
            action="extend",
            nargs="+",
            default=[],
            metavar="PATH",
            help="files or folders (repeatable)",
        )
        add(
            "--fail-on",
            choices=[str(one) for one in Severity],
            help="the least severity that fails",
        )
        add("-o", "--output", choices=["table", "json", "sarif"], default="table")

    def handle(self, *, filename: list[str], output: str, **options: Any) -> None:
        """Examine, print, and fail if something severe was found."""
        side = read_files(filename) if filename else None
        report = _examine_files(side) if side else current_report()
        notes = [*side.notes, *_without_effect(side)] if side else []
        for one in notes:
            self.stderr.write(f"{one.file}:{one.line}: {one.message}")
        findings = sorted(
            report.findings, key=lambda pair: list(Severity).index(pair[1].severity)
        )
        examined = [report.fleet, *report.placements.values()]
        muted = sum(one.muted for one in examined)
        not_checked = sorted({rule for one in examined for rule in one.not_checked})
        if output == "sarif":
            placements = side.placements.values() if side else ()
            written = side.overrides if side else ()
            places = {
                one.manifest.full_name: (one.file, one.line) for one in placements
            }
            members = side.member_files if side else {}
            overrides = {
                override_name(one.manifest): (one.file, one.line) for one in written
            }
            text = findings_sarif(
                findings,
                places | overrides,
                members,
                notes_sarif(notes),
                version=__version__,
            )
            self.stdout.write(text, ending="")
        elif output == "json":
            items = [finding_document(placement, one) for placement, one in findings]
            document = {"items": items, "muted": muted, "notChecked": not_checked}
            if side is not None:
                document["notes"] = [note_document(one) for one in notes]
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        else:
            lines = finding_lines(findings) or ["No findings."]
            lines += [f"{muted} muted."] if muted else []
            lines += [f"Not checked: {', '.join(not_checked)}."] if not_checked else []
            self.stdout.write("\n".join(lines))
        severe = _at_least(findings, options["fail_on"])
        if severe:
            raise CommandError(
                f"--fail-on {options['fail_on']}: {severe} found",
                returncode=HAS_FINDINGS,
            )


def _without_effect(side: DiffSide) -> list[SourceNote]:
    """Return a note if the files have nothing that is checked: a hook passes any file that changed."""
    if side.placements or side.members or side.overrides or side.notes:
        return []
    file = next(iter(side.files), ".")
    more = f" (and {len(side.files) - 1} more files)" if len(side.files) > 1 else ""
    return [SourceNote(file, 1, f"contains nothing that is checked{more}")]


def _examine_files(side: DiffSide) -> FindingsReport:
    """Examine what is in files; their MemberClusters are the fleet."""
    fleet = side.fleet()
    manifests = [one.manifest for one in side.placements.values()]
    cycles = (
        (one.full_name, one, draft_cycle(one, saved=None, fleet=fleet))
        for one in manifests
    )
    asserted = _asserted(side) if len(fleet) else {}
    return examine(
        fleet, cycles, [one.manifest for one in side.overrides], asserted=asserted
    )


def _asserted(side: DiffSide) -> dict[str, list[AssertionResult]]:
    """Evaluate the assertions of files, decided from nothing; entries are those of the current folder."""
    try:
        file = parse_checks_file(read_checks_file("."))
    except InvalidManifest as invalid:
        errors = "\n".join(f"{NAME}: {error}" for error in invalid.errors)
        raise CommandError(errors, returncode=INVALID) from invalid
    impact = compare(side, side)
    return {
        row.where.manifest.full_name: impact.assertion_results(
            row, items, of_base=False
        )
        for row in impact.rows
        if (items := assertions_of(row.where, file))
    }


def _at_least(findings: list[tuple[str, Finding]], least: str | None) -> int:
    """Return how many findings are at least as severe."""
    order = list(Severity)
    if least is None:
        return 0
    return sum(
        order.index(one.severity) <= order.index(Severity(least)) for _, one in findings
    )
