"""Gates: limits that a comparison must keep, from `.fleetui.yaml`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.fields import Flag, list_of, one_of, refusal
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, ManifestModel, failure, parse_manifest
from fleetui.apimachinery.yaml import attach_lines, load_documents
from placements.engine.assertions import AssertionState
from placements.engine.checks.examination import RULES
from placements.engine.checks.findings import Finding, Severity
from placements.engine.scheduling.selectors import selects
from placements.explain.assertions import assertion_sentence
from placements.manifests.affinity import LabelSelector
from placements.manifests.assertions import Assertion, assertion_problems, assertions_in
from placements.services.impact.compare import DiffRow, RevisionImpact

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?")
_SEVERITIES = list(Severity)


class GateState(StrEnum):
    PASSED = "passed"
    BROKEN = "broken"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate, for one placement or (row None) for all of them."""

    gate: str
    state: GateState
    message: str
    row: DiffRow | None = None


def _limit(value: object) -> Decimal:
    """Return a limit exactly as it is written."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not _NUMBER.fullmatch(str(value)):
        raise refusal("wrong-type", "Invalid value: must be a number", "a number from 0")
    return Decimal(str(value))


def predicates_in(value: object) -> tuple[Assertion, ...]:
    """Return the assertions of a list of predicates. Raise ValidationError."""
    if problems := list(assertion_problems(value)):
        raise failure(problems)
    return assertions_in(value).items


Limit: TypeAlias = Annotated[Decimal, BeforeValidator(_limit)]


class RowGates(ManifestModel):
    """The gates for one placement."""

    max_leaves: Limit | None = Field(None, alias="max-leaves")
    no_new_unfulfilled: Flag = Field(default=False, alias="no-new-unfulfilled")
    no_unschedule_everything: Flag = Field(default=False, alias="no-unschedule-everything")
    checks: Annotated[Severity, one_of(Severity)] | None = None
    asserted: Annotated[tuple[Assertion, ...], BeforeValidator(predicates_in)] = Field((), alias="assert")


class Gates(RowGates):
    """The gates for all placements."""

    max_moves_percent: Limit | None = Field(None, alias="max-moves-percent")


class GateOverride(ManifestModel):
    """Other gates for placements with some labels."""

    selector: LabelSelector
    gates: RowGates


class GateConfig(ManifestModel):
    """What `.fleetui.yaml` has."""

    gates: Gates = Field(default_factory=Gates)
    overrides: Annotated[tuple[GateOverride, ...], list_of()] = ()

    def for_row(self, row: DiffRow) -> RowGates:
        """Return the gates for a placement: a later override replaces what an earlier one sets."""
        labels, effective = row.where.manifest.metadata.labels, self.gates
        for one in self.overrides:
            if selects(one.selector, labels):
                gates = {name: getattr(one.gates, name) for name in one.gates.model_fields_set}
                effective = effective.model_copy(update=gates)
        return effective


def parse_gates(text: bytes | None) -> GateConfig:
    """Parse `.fleetui.yaml`. Raise InvalidManifest."""
    documents = load_documents(text) if text else []
    if not documents or documents[0].data is None:
        return GateConfig()
    try:
        return parse_manifest(GateConfig, documents[0].data, semantics=DEFAULT_SEMANTICS, path="")
    except InvalidManifest as invalid:
        raise InvalidManifest(attach_lines((documents[0], one) for one in invalid.errors)) from invalid


def check_gates(impact: RevisionImpact, config: GateConfig, base_config: GateConfig) -> list[GateResult]:
    """Check every gate, first that for all placements together; of the base only what it asserts counts."""
    results = []
    percent = config.gates.max_moves_percent
    if percent is not None:
        is_over = impact.leaves * 100 > percent * impact.bindings_before
        message = f"{impact.leaves} of {impact.bindings_before} bindings move, at most {percent} % may"
        results.append(GateResult("max-moves-percent", _gate_state(is_over), message))
    if severity := config.gates.checks:
        results += _check_findings("labels of the fleet", impact.fleet_findings, (), severity)
    for row in impact.rows:
        gates = config.for_row(row)
        results += _check_row(row, gates)
        if row.head is not None:
            asserted = impact.assertions_of(row.head, of_base=False) + gates.asserted
            before = base_config.for_row(row).asserted
            before += impact.assertions_of(row.base, of_base=True) if row.base else ()
            results += _check_assertions(impact, row, asserted, before)
    return results


def _check_row(row: DiffRow, gates: RowGates) -> Iterator[GateResult]:
    most = gates.max_leaves
    if most is not None:
        message = f"{row.name} leaves {len(row.leaves)} clusters, at most {most} are allowed"
        yield GateResult("max-leaves", _gate_state(len(row.leaves) > most), message, row)
    if gates.no_new_unfulfilled:
        message = f"{row.name} is not fulfilled afterwards" if row.becomes_unfulfilled else ""
        is_broken = row.becomes_unfulfilled and row.before is not None
        yield GateResult("no-new-unfulfilled", _gate_state(is_broken), message, row)
    if gates.no_unschedule_everything:
        is_empty = bool(row.placed_before) and not row.placed_now
        message = f"{row.name} leaves all of its {len(row.placed_before)} clusters" if is_empty else ""
        yield GateResult("no-unschedule-everything", _gate_state(is_empty), message, row)
    if row.head is not None and gates.checks:
        yield from _check_findings(row.name, row.findings, row.not_checked, gates.checks, row)


def _check_findings(
    name: str,
    findings: Sequence[Finding],
    not_checked: Sequence[str],
    severity: Severity,
    row: DiffRow | None = None,
) -> Iterator[GateResult]:
    """Check that no finding of a severity or worse is new; rules that were not checked leave it open."""
    severe = _SEVERITIES[: _SEVERITIES.index(severity) + 1]
    broken = [one for one in findings if one.severity in severe]
    for one in broken:
        yield GateResult("checks", GateState.BROKEN, f"{name}: {one.rule} {one.message}", row)
    missing = [rule for rule in not_checked if RULES[rule].severity in severe]
    if missing:
        message = f"{name}: not checked: {', '.join(missing)}"
        yield GateResult("checks", GateState.UNDETERMINED, message, row)
    elif not broken:
        yield GateResult("checks", GateState.PASSED, "", row)


def _check_assertions(
    impact: RevisionImpact, row: DiffRow, asserted: tuple[Assertion, ...], before: tuple[Assertion, ...]
) -> Iterator[GateResult]:
    """Check the assertions of both sides: one that was broken before breaks no gate.

    One of the base that the head removes or replaces counts if it held: a change must not end a promise and
    break it. Where it still holds, or cannot be determined, its removal is accepted.
    """
    items = (*asserted, *(one for one in before if one not in asserted))
    base_states = [one.state for one in impact.assertion_results(row, items, of_base=True)]
    results = impact.assertion_results(row, items, of_base=False)
    for at, one in enumerate(results):
        was, message = base_states[at] if base_states else None, f"{row.name}: {assertion_sentence(one)}"
        is_withdrawn = at >= len(asserted)
        if is_withdrawn and (was, one.state) != (AssertionState.HOLDS, AssertionState.BROKEN):
            continue
        message += ", asserted in BASE, which this change no longer does" if is_withdrawn else ""
        state = GateState.PASSED
        if one.state is AssertionState.UNKNOWN:
            state = GateState.UNDETERMINED
        elif one.state is AssertionState.BROKEN and was is not AssertionState.BROKEN:
            state = GateState.BROKEN
        yield GateResult("assert", state, message, row)


def _gate_state(is_broken: bool) -> GateState:
    return GateState.BROKEN if is_broken else GateState.PASSED


def exit_status(results: list[GateResult]) -> int:
    """Return 1 if a gate is broken, else 3 if one is undetermined, else 0."""
    states = {one.state for one in results}
    if GateState.BROKEN in states:
        return 1
    return 3 if GateState.UNDETERMINED in states else 0
