"""Durations as Kubernetes writes them, such as `1h30m`, `90s` or `1.5h`."""

import re
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

from placements.scheduling.door.fields import filled
from placements.scheduling.door.parsing import failure, shown
from placements.scheduling.faults import Problem

_ALLOWED = "a duration such as 30s, 15m or 1h30m, at most 8760h"
_LONGEST = timedelta(hours=8760)
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|μs|ms|s|m|h)")
_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}


def parse_duration(text: str) -> timedelta:
    """Read a duration, rounded up to microseconds; raise ValueError for what is none."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part.group() for part in parts) != text:
        raise ValueError(f"not a duration: {text!r}")
    total = sum(Fraction(part[1]) * _MICROSECONDS[part[2]] for part in parts)
    try:
        return timedelta(microseconds=-int(-total // 1))
    except OverflowError as error:
        raise ValueError(f"not a duration of this world: {text!r}") from error


def _positive(value: object) -> str:
    found = filled(value)
    try:
        duration = parse_duration(found)
    except ValueError as error:
        problem = Problem((), "bad-format", f"{shown(found)} is not a duration", _ALLOWED)
        raise failure([problem]) from error
    if not timedelta(0) < duration <= _LONGEST:
        raise failure([Problem((), "out-of-range", f"{shown(found)} is out of range", _ALLOWED)])
    return found


DurationText: TypeAlias = Annotated[str, BeforeValidator(_positive)]
