"""Kubernetes quantities (`500m`, `1Gi`, `1E3`), compared exactly.

The rules are those of the Kubernetes resource quantity format as `spec/scheduler.md` 4.1 states them:
finer than 10⁻⁹ rounds away from zero to 1n, above 2⁶³ − 1 is capped, `1E` is exa and `1E3` is 1000. As in
Kubernetes, a sign or suffix without any digit counts as 0.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_NANO_DIGITS = 9
_LARGEST = 2**63 - 1
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,9})?"
)
LONGEST_TEXT = 256


class QuantityError(ValueError):
    """A text is not a Kubernetes quantity."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as `unscaled` times ten to the power of `exponent`."""

    unscaled: int
    exponent: int

    @property
    def nano(self) -> int:
        """Return the exact value in units of 10⁻⁹."""
        shift: int = 10 ** (self.exponent + _NANO_DIGITS)
        return self.unscaled * shift

    @property
    def approximate(self) -> float:
        """Return the nearest double, computed as the released scheduler does: integer times power of ten."""
        if self.exponent == 0:
            return float(self.unscaled)
        return float(self.unscaled) * float(f"1e{self.exponent}")


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Quantity:
    """Return the quantity of a text. Raise QuantityError for text that is none."""
    match = _SHAPE.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if not text or match is None:
        raise QuantityError(
            f"invalid quantity {text[:40]!r}: must be a number such as 4, 0.5, 500m, 1Gi or 1E3"
        )
    part = match["part"] or ""
    unscaled, exponent, suffix = int((match["whole"] + part) or "0"), -len(part), match["suffix"] or ""
    if suffix in _BINARY_EXPONENTS:
        unscaled <<= _BINARY_EXPONENTS[suffix]
    elif suffix in _DECIMAL_EXPONENTS:
        exponent += _DECIMAL_EXPONENTS[suffix]
    else:
        exponent += int(suffix[1:])
    unscaled, exponent = _within_bounds(unscaled, exponent)
    return Quantity(-unscaled if match["sign"] == "-" else unscaled, exponent)


def quantity_words(value: str | float, name: str = "", *, exact: bool = False) -> str:
    """Return a quantity as people read it: "2,560" for 2560000m, "15.62Gi" for 16380000Ki.

    Memory, by the `name` or the suffix, has the largest binary unit. What is no quantity or a fraction such
    as 0.04000 stays as it is; with `exact` also what would be rounded.
    """
    is_binary = "memory" in name or "storage" in name or str(value).endswith("i")
    if isinstance(value, str) and not is_binary and "." in value and value[-1].isdigit():
        return value
    try:
        amount = parse_quantity(value).approximate if isinstance(value, str) else value
    except QuantityError:
        return str(value)
    units = [1, *(1 << power for power in _BINARY_EXPONENTS.values() if is_binary)]
    place = max(0, sum(abs(amount) >= one for one in units) - 1)
    number = amount / units[place]
    if (isinstance(value, str) and 0 < abs(amount) < 1) or (exact and round(number, 2) != number):
        return str(value)
    return f"{number:,.2f}".rstrip("0").rstrip(".") + ("", *_BINARY_EXPONENTS)[place]


def _within_bounds(unscaled: int, exponent: int) -> tuple[int, int]:
    if unscaled == 0:
        return 0, 0
    if exponent + len(str(unscaled)) > len(str(_LARGEST)) + 1:
        return _LARGEST, 0
    if exponent < -_NANO_DIGITS:
        # Round up to units of 10⁻⁹.
        dropped = -_NANO_DIGITS - exponent
        unscaled = 1 if dropped > len(str(unscaled)) else -(-unscaled // 10**dropped)
        exponent = -_NANO_DIGITS
    if exponent >= 0 and unscaled * 10**exponent > _LARGEST:
        return _LARGEST, 0
    if exponent < 0 and unscaled > _LARGEST * 10**-exponent:
        return _LARGEST, 0
    return unscaled, exponent
