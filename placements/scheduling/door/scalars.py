"""What a plain word in YAML means: the core types, read as kubectl's YAML library reads them.

Times and sexagesimals stay text. `y` and `n` stay text; `yes`, `no`, `on`, `off` are true and false.
"""

import math
import re
from collections.abc import Callable
from functools import lru_cache

from placements.scheduling.door.json_text import LONGEST_NUMBER

Scalar = str | int | float | bool | None

_WORDS: dict[str, bool | None] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= {form: True for word in ("true", "yes", "on") for form in (word, word.title(), word.upper())}
_WORDS |= {form: False for word in ("false", "no", "off") for form in (word, word.title(), word.upper())}
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)")
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_FIRST = frozenset("0123456789+-.~ntfyoNTFYO")


class ScalarError(ValueError):
    """A word in YAML that is refused; the text says why, following the word."""

    def __init__(self, message: str, *, code: str = "wrong-type") -> None:
        super().__init__(message)
        self.code = code


@lru_cache(maxsize=8192)
def resolve(word: str) -> Scalar:
    """Give the value of an unquoted word; raise ScalarError for numbers that nothing can hold."""
    if word and word[0] not in _FIRST:
        return word
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return _integer(word)
    if _FRACTION.fullmatch(word):
        return _fraction(word)
    if _ENDLESS.fullmatch(word):
        raise ScalarError("is not a finite number", code="out-of-range")
    return word


def _integer(word: str) -> int:
    digits = word.replace("_", "").lower()
    _refuse_long(digits)
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    if digits.startswith("0") and digits.isdigit() and not set(digits) & set("89"):
        return sign * int(digits, 8)
    return sign * int(digits, 10 if digits.isdigit() else 0)


def _fraction(word: str) -> float:
    _refuse_long(word)
    number = float(word)
    if not math.isfinite(number):
        raise ScalarError("is not a finite number", code="out-of-range")
    return number


def _refuse_long(digits: str) -> None:
    if len(digits) > LONGEST_NUMBER:
        raise ScalarError("is an absurdly long number", code="out-of-range")


def reads_as_text(word: str) -> bool:
    """Tell whether an unquoted word is text to every reader of YAML 1.1 and 1.2."""
    try:
        return isinstance(resolve(word), str) and word.lower() not in ("y", "n", "=", "<<")
    except ScalarError:
        return False


def resolve_tagged(tag: str, word: str) -> Scalar:
    """Give the value of a word with an explicit tag; raise ScalarError if the two do not go together."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind in ("str", "!"):
        return word
    value = resolve(word)
    fits = _FITS.get(kind)
    if fits is None:
        raise ScalarError(f"has the unknown tag {tag[:60]}", code="unknown-tag")
    if not fits(value):
        raise ScalarError(f"is not what its tag !!{kind} says")
    return float(value) if kind == "float" and isinstance(value, (int, float)) else value


_FITS: dict[str, Callable[[Scalar], bool]] = {
    "null": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}
