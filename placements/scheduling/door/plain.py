"""Check that data from outside is plain before anything walks it: no odd types, no bottomless nesting.

Every door calls this first, so that the models need not fear deep recursion, cycles, or text that
cannot be written as UTF-8.
"""

import math
import re
from collections.abc import Iterator, Mapping

from placements.scheduling.faults import Keys, Problem

DEEPEST = 64
MOST_VALUES = 5_000_000
LARGEST_INTEGER = 2**64
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BREAK = re.compile("[\t\n\r\u2028\u2029]")
_SCALARS = (str, int, float, bool, type(None))


def plain_problems(document: object) -> list[Problem]:
    """List what keeps a document from being plain data; quick when nothing does."""
    return [] if _is_plain(document) else _search(document)


def _is_plain(document: object) -> bool:
    """Look level by level, without keeping track of places."""
    level, count = [document], 0
    for _ in range(DEEPEST):
        count += len(level)
        inner: list[object] = []
        for value in level:
            if type(value) is dict:
                if not all(map(is_good_text, value)):
                    return False
                inner += value.values()
            elif type(value) is list:
                inner += value
            elif not is_good_scalar(value):
                return False
        if not inner:
            return count <= MOST_VALUES
        if count > MOST_VALUES:
            return False
        level = inner
    return False


def is_good_text(value: object) -> bool:
    """Tell whether a value is text that can be written as UTF-8, without control characters."""
    return type(value) is str and (value.isprintable() or not any(_scalar_problems((), value)))


def is_good_scalar(value: object) -> bool:
    """Tell whether a value is text, a number of sane size, true, false or null."""
    return (type(value) is str and value.isprintable()) or not any(_scalar_problems((), value))


def _search(document: object) -> list[Problem]:
    """Find the places of what is not plain."""
    problems: list[Problem] = []
    waiting: list[tuple[Keys, object]] = [((), document)]
    left = MOST_VALUES
    while waiting:
        keys, value = waiting.pop()
        left -= 1
        if left < 0:
            return [Problem((), "too-large", "holds too many values", f"at most {MOST_VALUES} values")]
        if isinstance(value, (Mapping, list, tuple)):
            waiting += _inside(keys, value, problems)
        else:
            problems += _scalar_problems(keys, value)
    return problems


def _inside(keys: Keys, value: object, problems: list[Problem]) -> Iterator[tuple[Keys, object]]:
    if len(keys) >= DEEPEST:
        problems.append(Problem(keys, "too-deep", "is nested too deeply", f"at most {DEEPEST} levels"))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and not _has_surrogate(key):
                yield (*keys, key), inner
            else:
                problems.append(Problem(keys, "wrong-type", "has a key that is not text", "text keys only"))
    elif isinstance(value, (list, tuple)):
        yield from (((*keys, index), inner) for index, inner in enumerate(value))


def _scalar_problems(keys: Keys, value: object) -> Iterator[Problem]:
    if not isinstance(value, _SCALARS):
        allowed = "text, numbers, true, false, null, lists, objects"
        yield Problem(keys, "wrong-type", f"holds a {type(value).__name__}", allowed)
    elif isinstance(value, str):
        if _has_surrogate(value):
            yield Problem(keys, "bad-format", "holds half a character (a lone surrogate)", "Unicode text")
        elif control := _CONTROL.search(value):
            message = f"holds the control character {control.group()!a}"
            yield Problem(keys, "bad-format", message, "text without control characters")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield Problem(keys, "out-of-range", "is not a finite number", "a finite number")
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        yield Problem(keys, "out-of-range", "is an absurdly large number", "numbers of at most 64 bits")


def is_one_line(text: str) -> bool:
    """Tell whether a text can stand in a table as it is: no line breaks, no control characters."""
    return text.isprintable() or not (_CONTROL.search(text) or _BREAK.search(text) or _has_surrogate(text))


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
