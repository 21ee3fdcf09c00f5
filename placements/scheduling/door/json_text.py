"""JSON text to plain data, strictly: no key twice, no NaN, no absurd numbers, no bottomless nesting."""

import json
import math
from typing import Any

from placements.scheduling.door.plain import DEEPEST, plain_problems
from placements.scheduling.faults import Fault, Faults, faults_of

LONGEST_NUMBER = 64


def load_json(text: str) -> object:
    """Read one JSON value; raise Faults."""
    try:
        data: object = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_int=_integer,
            parse_float=_fraction,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise Faults([Fault("", "bad-syntax", f"is not JSON: {error.msg}", "", error.lineno)]) from error
    except RecursionError as error:
        raise Faults([Fault("", "too-deep", "is nested too deeply", f"at most {DEEPEST} levels")]) from error
    problems = plain_problems(data)
    if problems:
        raise faults_of(problems, None)
    return data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Faults([Fault("", "duplicate", f"the key {json.dumps(twice[:60])} stands twice in one object")])
    return found


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise _absurd(digits)
    return int(digits)


def _fraction(digits: str) -> float:
    number = float(digits)
    if len(digits) > LONGEST_NUMBER or not math.isfinite(number):
        raise _absurd(digits)
    return number


def _refuse_constant(name: str) -> float:
    raise Faults([Fault("", "out-of-range", f"{name} is not a number that JSON knows", "a finite number")])


def _absurd(digits: str) -> Faults:
    return Faults([Fault("", "out-of-range", f"the number {digits[:20]}… is absurdly long or large")])
