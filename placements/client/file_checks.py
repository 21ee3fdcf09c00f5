"""`checks -f`: the findings about what is in files, without a console. Django is set up before."""

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.errors import BAD_INPUT
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.remote import RemoteError
from placements.client.checks import Findings
from placements.engine.checks.file import NAME, parse_checks_file
from placements.engine.checks.overrides import override_name
from placements.engine.checks.predicates import AssertionResult
from placements.explain.checks import finding_document, findings_sarif
from placements.explain.impact import note_document, notes_sarif
from placements.services.checks import FindingsReport, examine
from placements.services.impact.compare import assertions_of, compare
from placements.services.impact.sources import (
    DiffSide,
    SourceNote,
    read_checks_file,
    read_files,
)
from placements.services.snapshots import draft_cycle


def examine_files(paths: list[str]) -> Findings:
    """Examine what is in files or folders. Raise FleetError, RemoteError."""
    side = read_files(paths)
    with in_hub(LOCAL_HUB):
        report = _report_of(side)
    notes = [*side.notes, *_without_effect(side)]
    examined = [report.fleet, *report.placements.values()]
    places = {
        placement.manifest.full_name: (placement.file, placement.line)
        for placement in side.placements.values()
    }
    overrides = {
        override_name(override.manifest): (override.file, override.line)
        for override in side.overrides
    }
    return Findings(
        [
            finding_document(placement, finding)
            for placement, finding in report.findings
        ],
        sum(examination.muted for examination in examined),
        sorted({rule for examination in examined for rule in examination.not_checked}),
        notes=[note_document(note) for note in notes],
        sarif=lambda version: findings_sarif(
            report.findings,
            places | overrides,
            side.member_files,
            notes_sarif(notes),
            version=version,
        ),
    )


def _without_effect(side: DiffSide) -> list[SourceNote]:
    """Return a note if the files have nothing that is checked: a hook passes any file that changed."""
    if side.placements or side.members or side.overrides or side.notes:
        return []
    file = next(iter(side.files), ".")
    more = f" (and {len(side.files) - 1} more files)" if len(side.files) > 1 else ""
    return [SourceNote(file, 1, f"contains nothing that is checked{more}")]


def _report_of(side: DiffSide) -> FindingsReport:
    """Examine what is in files; their MemberClusters are the fleet.

    Their assertions are evaluated as decided from nothing; entries are those of the current folder.
    """
    fleet = side.fleet()
    manifests = [placement.manifest for placement in side.placements.values()]
    cycles = (
        (manifest.full_name, manifest, draft_cycle(manifest, saved=None, fleet=fleet))
        for manifest in manifests
    )
    asserted: dict[str, list[AssertionResult]] = {}
    if len(fleet):
        try:
            file = parse_checks_file(read_checks_file("."))
        except InvalidManifest as invalid:
            errors = "\n".join(f"{NAME}: {error}" for error in invalid.errors)
            raise RemoteError(errors, returncode=BAD_INPUT) from invalid
        impact = compare(side, side)
        asserted = {
            row.where.manifest.full_name: impact.assertion_results(
                row, items, of_base=False
            )
            for row in impact.rows
            if (items := assertions_of(row.where, file))
        }
    return examine(
        fleet,
        cycles,
        [override.manifest for override in side.overrides],
        asserted=asserted,
    )
