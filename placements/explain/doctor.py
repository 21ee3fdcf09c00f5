"""Findings of the doctor as plain data, as lines of a terminal and as SARIF."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleetui.apimachinery.errors import format_path
from placements.engine.doctor.examination import RULES
from placements.engine.doctor.findings import Finding, Fix, Severity

LEVELS = {Severity.ERROR: "failed", Severity.WARNING: "attention", Severity.INFO: "unknown"}
"""The status level of a severity on pages."""
SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


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


def findings_sarif(
    findings: Iterable[tuple[str, Finding]], places: Mapping[str, tuple[str, int]], *, version: str
) -> str:
    """Return SARIF 2.1.0; `places` are the file and line of placements that were read from files."""
    listed = []
    for placement, one in findings:
        message = f"{placement}: {one.message}" if placement else one.message
        listed.append((one.rule, SARIF_LEVELS[one.severity], message, places.get(placement)))
    rules = [{"id": one.id, "shortDescription": {"text": one.title}} for one in RULES.values()]
    return sarif_text(listed, rules, version=version)


def sarif_text(listed: Iterable[tuple[Any, ...]], rules: Sequence[Mapping[str, Any]], *, version: str) -> str:
    """Return a SARIF document of results: rule, level, message, and the file and line where known."""
    indexes = {rule["id"]: index for index, rule in enumerate(rules)}
    results = []
    for rule, level, message, place in listed:
        result: dict[str, Any] = {
            "ruleId": rule,
            "ruleIndex": indexes[rule],
            "level": level,
            "message": {"text": message},
        }
        if place:
            physical = {"artifactLocation": {"uri": place[0]}, "region": {"startLine": place[1]}}
            result["locations"] = [{"physicalLocation": physical}]
        results.append(result)
    driver = {"name": "FleetUI", "version": version, "rules": rules}
    document = {"version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
