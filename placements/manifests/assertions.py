"""Assertions of a placement, in its annotation or in a separate document.

See `rules/foresight.md#assertions`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import FilledText, list_of, literal
from fleetui.apimachinery.model import (
    ManifestModel,
    failure,
    plain_problems,
    quote_value,
)
from placements.manifests.affinity import LabelSelector

ASSERTIONS_ANNOTATION = "fleetui.io/assertions"
MOST_ASSERTIONS = 32
ON_BREAK = ("warn", "refuse")
_PERCENT = re.compile(r"(100|\d{1,2})%")


@dataclass(frozen=True, slots=True)
class Assertion:
    """One predicate with its value, as it is written.

    `entry` is that of `.fleetui.yaml`, empty for the annotation of a placement. `refuses`: a save that breaks
    the assertion is refused, not only warned about. Neither makes it another assertion.
    """

    predicate: str
    value: Any
    entry: str = field(default="", compare=False)
    refuses: bool = field(default=False, compare=False)


def parse_assertions(annotations: Mapping[str, str]) -> tuple[Assertion, ...]:
    text = annotations.get(ASSERTIONS_ANNOTATION)
    return assertions_in(json.loads(text)) if text else ()


def assertions_in(value: Any, entry: str = "") -> tuple[Assertion, ...]:
    """Return the assertions of valid data: a list of predicates, or an object with `assert` and `onBreak`."""
    predicates = value
    refuses = False
    if isinstance(value, dict):
        predicates = value["assert"]
        refuses = value.get("onBreak") == "refuse"
    written = (next(iter(predicate.items())) for predicate in predicates)
    return tuple(
        Assertion(predicate, argument, entry, refuses)
        for predicate, argument in written
    )


def assertions_problem(text: str) -> ErrorDetail | None:
    """Return the first error in the annotation, None for a valid one."""
    allowed = "a JSON list of predicates, or an object with assert and onBreak"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorDetail((), "bad-format", "Invalid value: must be JSON", allowed)
    if plain_problems(value):
        return ErrorDetail(
            (), "bad-format", "Invalid value: must be plain JSON", allowed
        )
    return next(assertion_problems(value), None)


def assertion_problems(value: Any) -> Iterator[ErrorDetail]:
    """Yield the errors in the data of assertions, each with its path."""
    predicates, path = value, tuple[str, ...]()
    if isinstance(value, dict):
        predicates, path = value.get("assert"), ("assert",)
        yield from (
            ErrorDetail((key,), "unknown-field", "Unknown field", "assert, onBreak")
            for key in value.keys() - {"assert", "onBreak"}
        )
        if value.get("onBreak", "warn") not in ON_BREAK:
            message = f"Unsupported value: {quote_value(str(value['onBreak']))}"
            yield ErrorDetail(("onBreak",), "not-one-of", message, ", ".join(ON_BREAK))
    if not isinstance(predicates, list) or len(predicates) > MOST_ASSERTIONS:
        yield ErrorDetail(
            path,
            "wrong-type",
            f"Invalid value: must be a list of at most {MOST_ASSERTIONS} predicates",
            "a list",
        )
        return
    for at, predicate in enumerate(predicates):
        yield from (
            problem.under(*path, at) for problem in predicate_problems(predicate)
        )


def predicate_problems(predicate: Any) -> Iterator[ErrorDetail]:
    if not isinstance(predicate, dict) or len(predicate) != 1:
        message = "Invalid value: must be an object with one predicate"
        yield ErrorDetail((), "wrong-type", message, ", ".join(PREDICATES))
        return
    [(name, argument)] = predicate.items()
    if name not in PREDICATES:
        message = f"Unsupported value: {quote_value(name)} is no predicate"
        yield ErrorDetail((name,), "not-one-of", message, ", ".join(PREDICATES))
    elif not PREDICATES[name][0](argument):
        yield ErrorDetail((name,), "bad-format", "Invalid value", PREDICATES[name][1])


def percent(text: str) -> int:
    return int(text[:-1])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 317


def _is_natural(value: Any) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**6
    )


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(_is_text, value))


PREDICATES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "never": (
        lambda value: (
            _is_map(value) and all(isinstance(one, str) for one in value.values())
        ),
        "labels, such as {env: canary}",
    ),
    "spread": (
        lambda value: (
            _is_map(value)
            and all(
                isinstance(one, dict)
                and one.keys() == {"atLeast"}
                and _is_natural(one["atLeast"])
                for one in value.values()
            )
        ),
        "keys with atLeast, such as {region: {atLeast: 3}}",
    ),
    "together": (_is_text, "the name of a placement"),
    "apart": (_is_text, "the name of a placement"),
    "survives": (
        lambda value: (
            _is_text(value)
            or (isinstance(value, list) and value and all(map(_is_text, value)))
        ),
        "cluster, a label key, or a list of these",
    ),
    "maxShare": (
        lambda value: (
            _is_map(value)
            and all(
                isinstance(one, str) and _PERCENT.fullmatch(one)
                for one in value.values()
            )
        ),
        "keys with a percentage, such as {provider: 50%}",
    ),
    "minFree": (_is_natural, "a number"),
    "churn": (
        lambda value: (
            isinstance(value, dict)
            and value.keys() == {"perWeek"}
            and _is_natural(value["perWeek"])
        ),
        "{perWeek: NUMBER}",
    ),
}
"""Each predicate with the check of its value, and the values that it accepts."""


def _predicates(value: object) -> tuple[dict[str, Any], ...]:
    problems = list(assertion_problems(value if not isinstance(value, dict) else None))
    if problems:
        raise failure(problems)
    return tuple(value)  # type: ignore[arg-type]


class AssertionEntry(ManifestModel):
    """What is asserted of the placements that it selects by labels or names; without either, of all."""

    name: FilledText
    selector: LabelSelector | None = None
    placements: Annotated[tuple[FilledText, ...], list_of(high=1000, ours=True)] = ()
    asserted: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_predicates)] = (
        Field(alias="assert")
    )
    on_break: Annotated[str, literal(*ON_BREAK)] = "warn"

    @property
    def assertions(self) -> tuple[Assertion, ...]:
        return assertions_in(
            {"assert": self.asserted, "onBreak": self.on_break}, self.name
        )
