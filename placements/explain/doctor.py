"""Findings of the doctor as plain data, as lines of a terminal and as SARIF."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleetui.apimachinery.errors import format_path
from placements.engine.doctor.examination import RULES
from placements.engine.doctor.findings import Finding, Fix, Severity
from placements.explain.sarif import SarifResult, sarif_text

LEVELS = {Severity.ERROR: "failed", Severity.WARNING: "attention", Severity.INFO: "unknown"}
"""The status level of a severity on pages."""
SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
TITLES = {one.id: one.title for one in RULES.values()}


def fix_document(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    return {
        "words": fix.words,
        "edits": [{"path": format_path(("spec", *path)), "value": value} for path, value in fix.edits],
        "labels": [{"cluster": name, "key": key, "value": value} for name, key, value in fix.labels],
    }


def finding_document(placement: str, finding: Finding) -> dict[str, Any]:
    """Return a finding with those of its cause; `placement` is empty for one about the fleet."""
    return {
        "rule": finding.rule,
        "title": RULES[finding.rule].title,
        "severity": str(finding.severity),
        "placement": placement,
        "path": finding.path,
        "message": finding.message,
        "evidence": [{"key": key, "value": value} for key, value in finding.evidence],
        "fix": fix_document(finding.fix),
        "caused": [finding_document(placement, one) for one in finding.caused],
    }


def finding_lines(findings: Iterable[tuple[str, Finding]]) -> list[str]:
    """Return a line for each finding, and one for each that has the same cause."""
    lines = []
    for placement, one in findings:
        lines.append(f"{one.severity:<8} {one.rule}  {placement or 'fleet'}: {one.message}")
        lines += [f"{'':<13} {other.rule}: {other.message}" for other in one.caused]
        if one.fix:
            lines.append(f"{'':<13} Fix: {one.fix.words}")
    return lines


def place_of_labels(finding: Finding, files: Mapping[str, str]) -> tuple[str, int]:
    """Return the file of a cluster that a finding about labels would change, else of any; "" if unknown.

    `files` are those of the clusters.
    """
    named = (name for name, *_ in (finding.fix.labels if finding.fix else ()) if name in files)
    first = next(named, next(iter(files), None))
    return (files[first] if first else "", 1)


def findings_sarif(
    findings: Iterable[tuple[str, Finding]],
    places: Mapping[str, tuple[str, int]],
    member_files: Mapping[str, str],
    *,
    version: str,
) -> str:
    """Return SARIF; `places` are the file and line of placements that were read from files."""
    results = [
        SarifResult(
            one.rule,
            SARIF_LEVELS[one.severity],
            f"{placement}: {one.message}" if placement else one.message,
            *(places.get(placement, ("", 1)) if placement else place_of_labels(one, member_files)),
        )
        for placement, one in findings
    ]
    return sarif_text(results, TITLES, version=version)
