"""Gates: what a comparison must keep, by `.fleetui.yaml`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from placements.engine.checks.change import GATES, GatedChange
from placements.engine.checks.examination import RULES
from placements.engine.checks.file import ChecksFile
from placements.engine.checks.findings import Finding, Needs, Severity
from placements.engine.checks.predicates import (
    AssertionResult,
    AssertionState,
)
from placements.services.impact.compare import DiffRow, RevisionImpact, assertions_of

_SEVERITIES = list(Severity)


class GateState(StrEnum):
    PASSED = "passed"
    BROKEN = "broken"
    UNDETERMINED = "undetermined"

    @classmethod
    def of(cls, result: AssertionResult, was: AssertionState | None) -> "GateState":
        if result.state is AssertionState.UNKNOWN:
            return GateState.UNDETERMINED
        if result.is_broken and was is not AssertionState.BROKEN:
            return GateState.BROKEN
        return GateState.PASSED


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate, for one placement or (row None) for all of them."""

    gate: str
    state: GateState
    message: str = ""
    row: DiffRow | None = None


def check_gates(
    impact: RevisionImpact, file: ChecksFile, base_file: ChecksFile
) -> list[GateResult]:
    """Check every gate, first those of all placements together; of the base only what it asserts counts."""
    total = GatedChange(file.gates, "", impact.leaves, impact.bindings_before)
    results = [*_check_change(total, Needs.CHANGES)]
    if severity := file.gates.checks:
        results += _check_findings(
            "labels of the fleet", impact.fleet_findings, (), severity
        )
    for row in impact.rows:
        gates = file.gates_for(row.where.manifest.metadata.labels)
        change = GatedChange(
            gates,
            row.name,
            len(row.leaves),
            len(row.placed_before),
            len(row.placed_now),
            becomes_unfulfilled=row.becomes_unfulfilled and row.before is not None,
        )
        results += _check_change(change, Needs.CHANGE, row)
        if row.head is not None:
            if gates.checks:
                results += _check_findings(
                    row.name, row.findings, row.not_checked, gates.checks, row
                )
            results += _check_assertions(impact, row, file, base_file)
    return results


def _check_change(
    change: GatedChange, needs: Needs, row: DiffRow | None = None
) -> Iterator[GateResult]:
    """Check the gates that are rules of their own, as far as the file has them."""
    for gate, rule in GATES.items():
        limit = getattr(change.gates, gate.replace("-", "_"), None)
        if rule.needs is not needs or limit is None or limit is False:
            continue
        findings = list(rule.check(change))
        yield from (
            GateResult(gate, GateState.BROKEN, finding.message, row)
            for finding in findings
        )
        if not findings:
            yield GateResult(gate, GateState.PASSED, row=row)


def _check_findings(
    name: str,
    findings: Sequence[Finding],
    not_checked: Sequence[str],
    severity: Severity,
    row: DiffRow | None = None,
) -> Iterator[GateResult]:
    """Check that no finding of a severity or worse is new; rules that were not checked leave it open."""
    severe = _SEVERITIES[: _SEVERITIES.index(severity) + 1]
    broken = [finding for finding in findings if finding.severity in severe]
    yield from (
        GateResult(
            "checks", GateState.BROKEN, f"{name}: {finding.rule} {finding.message}", row
        )
        for finding in broken
    )
    missing = [rule for rule in not_checked if RULES[rule].severity in severe]
    if missing:
        yield GateResult(
            "checks",
            GateState.UNDETERMINED,
            f"{name}: not checked: {', '.join(missing)}",
            row,
        )
    elif not broken:
        yield GateResult("checks", GateState.PASSED, row=row)


def _check_assertions(
    impact: RevisionImpact, row: DiffRow, file: ChecksFile, base_file: ChecksFile
) -> Iterator[GateResult]:
    """Check the assertions of both sides: one that was broken before breaks no gate.

    One of the base that the head removes or replaces counts if it held: a change must not end a promise and
    break it. Where it still holds, or cannot be determined, its removal is accepted.
    """
    asserted = assertions_of(row.where, file)
    before = assertions_of(row.base, base_file) if row.base else ()
    items = (
        *asserted,
        *(assertion for assertion in before if assertion not in asserted),
    )
    base_states = [
        result.state for result in impact.assertion_results(row, items, of_base=True)
    ]
    for at, result in enumerate(impact.assertion_results(row, items, of_base=False)):
        was = base_states[at] if base_states else None
        is_withdrawn = at >= len(asserted)
        if is_withdrawn and (was, result.state) != (
            AssertionState.HOLDS,
            AssertionState.BROKEN,
        ):
            continue
        message = f"{row.name}: {result.sentence}"
        if is_withdrawn:
            message += ", asserted in BASE, which this change no longer does"
        yield GateResult("assert", GateState.of(result, was), message, row)


def exit_status(results: list[GateResult]) -> int:
    """Return 1 if a gate is broken, else 3 if one is undetermined, else 0."""
    states = {result.state for result in results}
    if GateState.BROKEN in states:
        return 1
    return 3 if GateState.UNDETERMINED in states else 0
