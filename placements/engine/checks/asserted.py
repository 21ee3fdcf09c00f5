"""Rules about what placements assert: an assertion that is broken, and one that cannot be checked."""

import json
from collections.abc import Iterator
from dataclasses import replace

from placements.engine.checks.file import NAME
from placements.engine.checks.findings import (
    Case,
    Evidence,
    Finding,
    Needs,
    Rule,
    Severity,
)
from placements.engine.checks.predicates import AssertionResult, AssertionState
from placements.manifests.assertions import ASSERTIONS_ANNOTATION
from placements.manifests.ocm import annotation_path

BROKEN = "assertion-broken"


def broken_assertions(case: Case) -> Iterator[Finding]:
    yield from (broken_finding(result) for result in case.asserted if result.is_broken)


def broken_finding(result: AssertionResult) -> Finding:
    message = f"{_source(result)} broken: {result.sentence}"
    finding = P01.finding(_path(result), message, *_evidence(result), code=BROKEN)
    if result.assertion.refuses:
        return replace(finding, severity=Severity.ERROR)
    return finding


def unknown_assertions(case: Case) -> Iterator[Finding]:
    for result in case.asserted:
        if result.state is AssertionState.UNKNOWN:
            message = f"{_source(result)} cannot be checked: {result.sentence}"
            yield P02.finding(_path(result), message, *_evidence(result))


def _source(result: AssertionResult) -> str:
    entry = result.assertion.entry
    return f"Assertion of {entry} in {NAME}" if entry else "Assertion"


def _path(result: AssertionResult) -> str:
    if result.assertion.entry:
        return "metadata.name"
    return annotation_path(ASSERTIONS_ANNOTATION)


def _evidence(result: AssertionResult) -> Evidence:
    value = json.dumps(result.assertion.value, ensure_ascii=False)
    return ((result.assertion.predicate, value),)


P01 = Rule(
    "P01", Severity.WARNING, Needs.ASSERTIONS, "Assertion broken", broken_assertions
)
P02 = Rule(
    "P02",
    Severity.INFO,
    Needs.ASSERTIONS,
    "Assertion that cannot be checked",
    unknown_assertions,
)
ASSERTED = (P01, P02)
