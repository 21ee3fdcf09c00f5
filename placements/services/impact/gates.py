"""Gates: limits that a comparison must keep, from `.fleetui.yaml`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from fleetui.apimachinery.errors import FieldError, InvalidManifest, format_path
from fleetui.apimachinery.model import quote_value
from fleetui.apimachinery.yaml import load_documents
from placements.engine.assertions import AssertionState
from placements.engine.doctor.examination import RULES
from placements.engine.doctor.findings import Finding, Severity
from placements.explain.assertions import assertion_name, assertion_sentence
from placements.manifests.assertions import Assertion, assertion_problems, assertions_in
from placements.services.impact.compare import DiffRow, RevisionImpact

CONFIG = ".fleetui.yaml"
_GATES = (
    *("max-moves-percent", "max-leaves", "no-new-unfulfilled", "no-unschedule-everything"),
    *("doctor", "assert"),
)
_SEVERITIES = [str(one) for one in Severity]

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?")


class GateState(StrEnum):
    """Whether a gate is kept."""

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


@dataclass(frozen=True, slots=True)
class GateConfig:
    """The gates for all placements, and those for the placements with some labels."""

    gates: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[tuple[Mapping[str, str], Mapping[str, Any]], ...] = ()

    def for_row(self, row: DiffRow) -> dict[str, Any]:
        labels, found = row.where.manifest.metadata.labels, dict(self.gates)
        for wanted, gates in self.overrides:
            if wanted.items() <= labels.items():
                found |= gates
        return found


def parse_gates(text: bytes) -> GateConfig:
    """Parse `.fleetui.yaml`. Raise InvalidManifest."""
    documents = load_documents(text)
    data = documents[0].data if documents else {}
    faults = list(_config_faults(data))
    if faults:
        raise InvalidManifest(faults)
    overrides = tuple(
        (one.get("selector", {}).get("matchLabels", {}), one["gates"]) for one in data.get("overrides") or ()
    )
    return GateConfig(data.get("gates") or {}, overrides)


def _config_faults(data: Any) -> Iterator[FieldError]:
    if not isinstance(data, dict):
        yield FieldError("", "wrong-type", "Invalid value: must be an object", "gates and overrides")
        return
    for key in sorted(data.keys() - {"gates", "overrides"}):
        yield FieldError(str(key), "unknown-field", "Unknown field", "gates, overrides")
    yield from _gate_faults(data.get("gates") or {}, ("gates",))
    overrides = data.get("overrides") or []
    for at, one in enumerate(overrides if isinstance(overrides, list) else [overrides]):
        labels = one.get("selector", {}).get("matchLabels") if isinstance(one, dict) else None
        if not isinstance(labels, dict) or not isinstance(one.get("gates"), dict):
            message = "Invalid value: must have selector.matchLabels and gates"
            yield FieldError(f"overrides[{at}]", "wrong-type", message, "selector and gates")
        else:
            yield from _gate_faults(one["gates"], ("overrides", at, "gates"), is_override=True)


def _gate_faults(
    gates: Any, path: tuple[str | int, ...], *, is_override: bool = False
) -> Iterator[FieldError]:
    if not isinstance(gates, dict):
        yield FieldError(
            format_path(path), "wrong-type", "Invalid value: must be an object", ", ".join(_GATES)
        )
        return
    known = [one for one in _GATES if not is_override or one != "max-moves-percent"]
    for key, value in gates.items():
        where = format_path((*path, str(key)))
        if key not in known:
            yield FieldError(where, "not-one-of", "Unsupported value: no such gate", ", ".join(known))
        elif key == "assert":
            for one in assertion_problems(value):
                inner = format_path((*path, key, *one.keys))
                yield FieldError(inner, one.code, one.message, one.allowed)
        elif key == "doctor" and value not in _SEVERITIES:
            message = f"Unsupported value: {quote_value(str(value))} is no severity"
            yield FieldError(where, "not-one-of", message, ", ".join(_SEVERITIES))
        elif key.startswith("no-") and not isinstance(value, bool):
            yield FieldError(where, "wrong-type", "Invalid value: must be true or false", "true, false")
        elif key.startswith("max-") and not _NUMBER.fullmatch(str(value)):
            yield FieldError(where, "wrong-type", "Invalid value: must be a number", "a number from 0")


def check_gates(impact: RevisionImpact, config: GateConfig) -> list[GateResult]:
    """Check every gate, first that for all placements together."""
    found = []
    percent = config.gates.get("max-moves-percent")
    if percent is not None:
        is_over = impact.leaves * 100 > Decimal(str(percent)) * impact.bindings_before
        message = f"{impact.leaves} of {impact.bindings_before} bindings move, at most {percent} % may"
        found.append(GateResult("max-moves-percent", _state(is_over), message))
    if severity := config.gates.get("doctor"):
        found += _check_findings("labels of the fleet", impact.fleet_findings, (), severity)
    for row in impact.rows:
        found += _check_row(impact, row, config.for_row(row))
    return found


def _check_row(impact: RevisionImpact, row: DiffRow, gates: Mapping[str, Any]) -> Iterator[GateResult]:
    most = gates.get("max-leaves")
    if most is not None:
        message = f"{row.name} leaves {len(row.leaves)} clusters, at most {most} are allowed"
        yield GateResult("max-leaves", _state(len(row.leaves) > Decimal(str(most))), message, row)
    if gates.get("no-new-unfulfilled"):
        message = f"{row.name} is not fulfilled afterwards" if row.becomes_unfulfilled else ""
        is_broken = row.becomes_unfulfilled and row.before is not None
        yield GateResult("no-new-unfulfilled", _state(is_broken), message, row)
    if gates.get("no-unschedule-everything"):
        is_empty = bool(row.placed_before) and not row.placed_now
        message = f"{row.name} leaves all of its {len(row.placed_before)} clusters" if is_empty else ""
        yield GateResult("no-unschedule-everything", _state(is_empty), message, row)
    if row.head is None:
        return
    if severity := gates.get("doctor"):
        yield from _check_findings(row.name, row.findings, row.not_checked, severity, row)
    added = assertions_in(gates["assert"]).items if gates.get("assert") else ()
    items = impact.assertions_of(row.head.manifest) + added
    yield from _check_assertions(impact, row, items)


def _check_findings(
    name: str,
    findings: Sequence[Finding],
    not_checked: Sequence[str],
    severity: str,
    row: DiffRow | None = None,
) -> Iterator[GateResult]:
    """Check that no finding of a severity or worse is new; rules that were not checked leave it open."""
    severe = _SEVERITIES[: _SEVERITIES.index(severity) + 1]
    broken = [one for one in findings if one.severity in severe]
    for one in broken:
        yield GateResult("doctor", GateState.BROKEN, f"{name}: {one.rule} {one.message}", row)
    missing = [rule for rule in not_checked if RULES[rule].severity in severe]
    if missing:
        message = f"{name}: not checked: {', '.join(missing)}"
        yield GateResult("doctor", GateState.UNDETERMINED, message, row)
    elif not broken:
        yield GateResult("doctor", GateState.PASSED, "", row)


def _check_assertions(
    impact: RevisionImpact, row: DiffRow, items: tuple[Assertion, ...]
) -> Iterator[GateResult]:
    """Check assertions: one that was broken before breaks no gate."""
    before = impact.assertion_results(row, items, of_base=True)
    was_broken = {
        assertion_name(one.predicate, one.value) for one in before if one.state is AssertionState.BROKEN
    }
    for one in impact.assertion_results(row, items, of_base=False):
        is_new = assertion_name(one.predicate, one.value) not in was_broken
        state = GateState.PASSED
        if one.state is AssertionState.UNKNOWN:
            state = GateState.UNDETERMINED
        elif one.state is AssertionState.BROKEN and is_new:
            state = GateState.BROKEN
        yield GateResult("assert", state, f"{row.name}: {assertion_sentence(one)}", row)


def _state(is_broken: bool) -> GateState:
    return GateState.BROKEN if is_broken else GateState.PASSED


def exit_status(results: list[GateResult]) -> int:
    """Return 1 if a gate is broken, else 3 if one is undetermined, else 0."""
    states = {one.state for one in results}
    if GateState.BROKEN in states:
        return 1
    return 3 if GateState.UNDETERMINED in states else 0
