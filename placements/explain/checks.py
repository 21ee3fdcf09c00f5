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
OF_OVERRIDES = frozenset(override.id for override in OVERRIDES)
"""Rules whose findings are about an override, which is the key of their first evidence."""
TITLES = {rule.id: rule.title for rule in RULES.values()}


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
    for document in documents:
        subject = document["placement"] or "fleet"
        lines.append(
            f"{document['severity']:<8} {document['rule']}  {subject}: {document['message']}"
        )
        lines += [
            f"{'':<13} {other['rule']}: {other['message']}"
            for other in document["caused"]
        ]
        if document["fix"]:
            lines.append(f"{'':<13} Fix: {document['fix']['words']}")
    return lines


def documents_sarif(documents: Iterable[Mapping[str, Any]], version: str) -> str:
    """Return SARIF of findings about a hub, which are in no file."""
    results = [
        SarifResult(
            document["rule"],
            SARIF_LEVELS[Severity(document["severity"])],
            f"{document['placement']}: {document['message']}".removeprefix(": "),
        )
        for document in documents
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
    for finding in several:
        labels = finding.fix.labels if finding.fix else ()
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
        SarifResult(
            finding.rule,
            SARIF_LEVELS[finding.severity],
            finding.message,
            file,
            lines[at],
        )
        for finding, (file, at) in zip(several, places, strict=True)
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
        finding
        for placement, finding in several
        if not placement and finding.rule not in OF_OVERRIDES
    ]
    results = labels_sarif(labels, member_files)
    for placement, finding in several:
        name, message = placement, f"{placement}: {finding.message}"
        if finding.rule in OF_OVERRIDES:
            name, message = finding.evidence[0][0], finding.message
        if name:
            place = places.get(name, ("", 1))
            results.append(
                SarifResult(
                    finding.rule, SARIF_LEVELS[finding.severity], message, *place
                )
            )
    return sarif_text([*results, *notes], TITLES, version=version)
