"""The kinds of fields that documents have; each checks one value and says what is allowed."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from placements.scheduling.door import names
from placements.scheduling.door.parsing import failure, problems_in, shown, wrong_type
from placements.scheduling.faults import Problem
from placements.scheduling.quantity import QuantityError, parse_quantity

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
INT32_MAX = 2**31 - 1
_LONGEST_CLUSTER_NAME = 63


def _refuse(code: str, message: str, allowed: str) -> ValidationError:
    return failure([Problem((), code, message, allowed)])


def text(value: object) -> str:
    """Take text and nothing else."""
    if isinstance(value, str):
        return value
    raise failure([wrong_type(value, "text")])


def flag(value: object) -> bool:
    """Take true or false and nothing else."""
    if isinstance(value, bool):
        return value
    raise failure([wrong_type(value, "true or false")])


def filled(value: object) -> str:
    """Take text that is not empty."""
    found = text(value)
    if not found:
        raise _refuse("required", "is empty", "some text")
    return found


def whole(low: int, high: int = INT32_MAX) -> BeforeValidator:
    """Take a whole number within bounds."""

    def check(value: object) -> int:
        return whole_number(value, low, high)

    return BeforeValidator(check)


def whole_number(value: object, low: int, high: int) -> int:
    """Take a whole number within bounds, or raise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise failure([wrong_type(value, f"a whole number from {low} to {high}")])
    if not low <= value <= high:
        raise _refuse("out-of-range", f"{value} is out of range", f"a whole number from {low} to {high}")
    return value


def one_of(closed: type[StrEnum], *, hints: Mapping[str, str] | None = None) -> BeforeValidator:
    """Take a member of a closed set; hints answer well-known wrong words."""
    allowed = ", ".join(closed)

    def check(value: object) -> StrEnum:
        found = text(value)
        if found not in list(closed):
            message = (hints or {}).get(found) or f"{shown(found)} is not known here"
            raise _refuse("not-one-of", message, allowed)
        return closed(found)

    return BeforeValidator(check)


def word_of(*allowed: str) -> BeforeValidator:
    """Take one of a few fixed texts."""
    listing = ", ".join(word or "nothing" for word in allowed)

    def check(value: object) -> str:
        found = text(value)
        if found not in allowed:
            raise _refuse("not-one-of", f"{shown(found)} is not known here", listing)
        return found

    return BeforeValidator(check)


def api_version(*supported: str) -> BeforeValidator:
    """Take one of the API versions that this project reads."""

    def check(value: object) -> str:
        found = filled(value)
        if found not in supported:
            message = f"{shown(found)} is not read here"
            raise _refuse("api-version-not-supported", message, " or ".join(supported))
        return found

    return BeforeValidator(check)


def spelled(
    problem_of: Callable[[str], names.NameProblem | None], allowed: str, *, filled_in: bool = True
) -> BeforeValidator:
    """Take text of a certain syntax."""

    def check(value: object) -> str:
        found = filled(value) if filled_in else text(value)
        problem = problem_of(found)
        if problem:
            raise _refuse(problem.code, f"{shown(found)} {problem.words}", allowed)
        return found

    return BeforeValidator(check)


def listed(*, low: int = 0, high: int | None = None, ours: bool = False) -> WrapValidator:
    """Take a list of so many items; those over the limit are not looked at."""

    def check(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        if not isinstance(value, (list, tuple)):
            raise failure([wrong_type(value, "a list")])
        problems = list(_count_problems(len(value), low, high, ours))
        try:
            found = handler(tuple(value[:high]))
        except ValidationError as error:
            problems += problems_in(error)
        if problems:
            raise failure(problems)
        return found

    return WrapValidator(check)


def _count_problems(count: int, low: int, high: int | None, ours: bool) -> Iterator[Problem]:
    allowed = f"{low} to {high} items" if low != high else f"exactly {low}"
    if count < low:
        yield Problem((), "too-few", f"has {count} items", allowed)
    if high is not None and count > high:
        whose = " (a limit of this console)" if ours else ""
        yield Problem((), "too-many", f"has {count} items{whose}", allowed)


def _labels(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of label keys and values")])
    problems = [problem.under(key) for key, label in value.items() for problem in _label_problems(key, label)]
    if problems:
        raise failure(problems)
    return dict(value)


def _label_problems(key: str, label: object) -> Iterator[Problem]:
    problem = names.label_key_problem(key)
    if problem:
        yield Problem((), problem.code, f"the key {problem.words}", names.LABEL_KEY)
    if not isinstance(label, str):
        yield wrong_type(label, "text")
    elif problem := names.label_value_problem(label):
        yield Problem((), problem.code, f"{shown(label)} {problem.words}", names.LABEL_VALUE)


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of texts")])
    odd = {key: item for key, item in value.items() if not isinstance(item, str)}
    problems = [wrong_type(item, "text").under(key) for key, item in odd.items()]
    if problems:
        raise failure(problems)
    return dict(value)


def annotations(value: object) -> dict[str, str]:
    """Take an object of texts whose keys are qualified names."""
    found = _texts(value)
    for key in found:
        problem = names.label_key_problem(key.lower())
        if problem:
            raise failure([Problem((key,), problem.code, f"the key {problem.words}", names.LABEL_KEY)])
    return found


def quantities(value: object) -> dict[str, str]:
    """Take an object of texts and numbers, as YAML holds quantities, and give them as text."""
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of quantities")])
    found = {key: written(item) for key, item in value.items()}
    if None in found.values():
        odd = (key for key, item in found.items() if item is None)
        raise failure(wrong_type(value[key], "a quantity").under(key) for key in odd)
    return {key: item for key, item in found.items() if item is not None}


def written(value: object) -> str | None:
    """Give a quantity as text if it is text or a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return repr(value)


def _quantity(value: object) -> str:
    found = text(value)
    try:
        parse_quantity(found)
    except QuantityError as error:
        allowed = "a number such as 4, 0.5, 500m, 1Gi or 1E3"
        raise _refuse("bad-format", f"{shown(found)} is not a Kubernetes quantity", allowed) from error
    return found


def _cluster_name_problem(name: str) -> names.NameProblem | None:
    return names.subdomain_problem(name, longest=_LONGEST_CLUSTER_NAME)


def _optional_key_problem(key: str) -> names.NameProblem | None:
    return names.label_key_problem(key) if key else None


def _moment(value: object) -> datetime:
    found = value if isinstance(value, datetime) else None
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with suppress(ValueError):
            found = datetime.fromisoformat(value.upper())
    if found is None:
        raise _refuse("bad-format", f"{shown(value)} is not a time", "a time such as 2026-08-20T12:00:00Z")
    return found


Text: TypeAlias = Annotated[str, BeforeValidator(text)]
FilledText: TypeAlias = Annotated[str, BeforeValidator(filled)]
Flag: TypeAlias = Annotated[bool, BeforeValidator(flag)]
QuantityText: TypeAlias = Annotated[str, BeforeValidator(_quantity)]
LabelKey: TypeAlias = Annotated[str, spelled(names.label_key_problem, names.LABEL_KEY)]
LabelValue: TypeAlias = Annotated[str, spelled(names.label_value_problem, names.LABEL_VALUE, filled_in=False)]
PropertyName: TypeAlias = Annotated[str, spelled(names.property_name_problem, names.PROPERTY_NAME)]
ClusterName: TypeAlias = Annotated[
    str, spelled(_cluster_name_problem, f"at most {_LONGEST_CLUSTER_NAME} {names.DNS_SUBDOMAIN}")
]
Moment: TypeAlias = Annotated[datetime, BeforeValidator(_moment)]
Labels: TypeAlias = Annotated[dict[str, str], BeforeValidator(_labels)]
Annotations: TypeAlias = Annotated[dict[str, str], BeforeValidator(annotations)]
OptionalLabelKey: TypeAlias = Annotated[
    str, spelled(_optional_key_problem, f"empty, or {names.LABEL_KEY}", filled_in=False)
]
