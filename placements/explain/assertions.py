"""Sentences and documents about the assertions of placements."""

import json
from typing import Any

from placements.engine.assertions import AssertionResult


def assertion_name(predicate: str, value: Any) -> str:
    """Return an assertion as it is written: `spread: {"region": {"atLeast": 3}}`."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{predicate}: {text}"


def assertion_sentence(one: AssertionResult) -> str:
    details = ", ".join(one.evidence) or one.reason
    return assertion_name(one.predicate, one.value) + (f" ({details})" if details else "")


def result_document(one: AssertionResult) -> dict[str, Any]:
    return {
        "predicate": one.predicate,
        "value": one.value,
        "name": assertion_name(one.predicate, one.value),
        "state": str(one.state),
        "evidence": list(one.evidence),
        "reason": one.reason,
    }
