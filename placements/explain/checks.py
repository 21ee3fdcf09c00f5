"""Findings of the checks as plain data, as lines of a terminal and as SARIF."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleetui.apimachinery.errors import format_path
from fleetui.apimachinery.yaml import Document, lines_of
from placements.engine.checks.examination import RULES
from placements.engine.checks.findings import Finding, Fix, Severity
from placements.engine.checks.overrides import OVERRIDES
from placements.explain.sarif import SarifResult, sarif_text

LEVEL = "unknown"
"""The status level of several findings on pages: they are advice, not a status of what runs."""
LEVELS = {
    Severity.ERROR: "failed",
    Severity.WARNING: "advice",
    Severity.INFO: "advice",
}
"""The icon of a finding."""
SARIF_LEVELS = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}
OF_OVERRIDES = frozenset(one.id for one in OVERRIDES)
"""Rules whose findings are about an override, which is the key of their first evidence."""
TITLES = {one.id: one.title for one in RULES.values()}


def fix_document(fix: Fix | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    return {
        "words": fix.words,
        "edits": [
            {"path": format_path(("spec", *path)), "value": value}
            for path, value in fix.edits
        ],
        "labels": [
            {"cluster": name, "key": key, "value": value}
            for name, key, value in fix.labels
        ],
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


def document_lines(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each finding, and one for each that has the same cause."""
    lines = []
    for one in documents:
        subject = one["placement"] or "fleet"
        lines.append(f"{one['severity']:<8} {one['rule']}  {subject}: {one['message']}")
        lines += [
            f"{'':<13} {other['rule']}: {other['message']}" for other in one["caused"]
        ]
        if one["fix"]:
            lines.append(f"{'':<13} Fix: {one['fix']['words']}")
    return lines


def documents_sarif(documents: Iterable[Mapping[str, Any]], version: str) -> str:
    """Return SARIF of findings about a hub, which are in no file."""
    results = [
        SarifResult(
            one["rule"],
            SARIF_LEVELS[Severity(one["severity"])],
            f"{one['placement']}: {one['message']}".removeprefix(": "),
        )
        for one in documents
    ]
    return sarif_text(results, TITLES, version=version)


MemberFiles = Mapping[str, tuple[str, Document | None]]
"""The file of each cluster, and its document there."""


def labels_sarif(findings: Iterable[Finding], files: MemberFiles) -> list[SarifResult]:
    """Return findings about labels at the line of the first label that the fix would change.

    Without a fix it is the first file of a cluster. Lines are read from the texts once, for all together.
    """
    several, fields, first = (
        list(findings),
        list[tuple[Document, str]](),
        next(iter(files), ""),
    )
    places = list[tuple[str, int]]()
    for one in several:
        labels = one.fix.labels if one.fix else ()
        name, key = next(
            ((name, key) for name, key, _ in labels if name in files), (first, "")
        )
        file, document = files.get(name, ("", None))
        at = 0
        if document and key:
            fields.append((document, format_path(("metadata", "labels", key))))
            at = len(fields)
        places.append((file, at))
    lines = [1, *(line or 1 for line in lines_of(fields))]
    return [
        SarifResult(one.rule, SARIF_LEVELS[one.severity], one.message, file, lines[at])
        for one, (file, at) in zip(several, places, strict=True)
    ]


def findings_sarif(
    findings: Iterable[tuple[str, Finding]],
    places: Mapping[str, tuple[str, int]],
    member_files: MemberFiles,
    notes: Iterable[SarifResult] = (),
    *,
    version: str,
) -> str:
    """Return SARIF; `places` are the file and line of placements and overrides, `notes` what was not read."""
    several = list(findings)
    labels = [
        one
        for placement, one in several
        if not placement and one.rule not in OF_OVERRIDES
    ]
    results = labels_sarif(labels, member_files)
    for placement, one in several:
        name, message = placement, f"{placement}: {one.message}"
        if one.rule in OF_OVERRIDES:
            name, message = one.evidence[0][0], one.message
        if name:
            place = places.get(name, ("", 1))
            results.append(
                SarifResult(one.rule, SARIF_LEVELS[one.severity], message, *place)
            )
    return sarif_text([*results, *notes], TITLES, version=version)
