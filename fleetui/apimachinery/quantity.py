"""Kubernetes quantities (`500m`, `1Gi`, `1E3`), compared exactly.

The rules are those of the Kubernetes quantity parser (`rules/scheduler.md#selectors-and-quantities`): finer
than 10⁻⁹ rounds away from zero to 1n, above 2⁶³ − 1 only a value with a binary suffix is capped, `1E` is
exa and `1E3` is 1000. Doubles follow the parser, too: it holds a short number as it is written and any other
one in units of 10⁻⁹, and multiplies that integer by the power of ten.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_NANO_DIGITS = 9
_LARGEST_BINARY = 2**63 - 1
_MOST_DECIMAL_DIGITS = 256
_SHORT_DECIMAL = 18
_SHORT_BINARY = 14
_DECIMAL_EXPONENTS = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
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

    @classmethod
    def of_binary(cls, whole: str, part: str, power: int) -> "Quantity | None":
        """Return digits times two to the power; None without any where the power is a large one."""
        unscaled = int(whole + part or "0") << power
        # 2¹⁰ takes about three digits.
        digits = len(whole.lstrip("0") or "0") + power * 3 // 10
        if not part and digits <= _SHORT_BINARY:
            return cls(unscaled, 0)
        if not whole + part:
            return None
        nano = _in_nano(unscaled, -len(part))
        if nano > _LARGEST_BINARY * 10**_NANO_DIGITS:
            return cls(_LARGEST_BINARY, 0)
        return cls(nano, -_NANO_DIGITS)

    @classmethod
    def of_decimal(cls, whole: str, part: str, power: int) -> "Quantity | None":
        """Return digits times ten to the power; None without any where that is below 10⁻⁹."""
        unscaled = int(whole + part or "0")
        exponent = power - len(part)
        digits = len(whole.lstrip("0") or "0") + len(part)
        is_short = digits <= _SHORT_DECIMAL and exponent >= -_NANO_DIGITS
        if is_short and not unscaled:
            return cls(0, 0)
        if exponent + len(str(unscaled)) > _MOST_DECIMAL_DIGITS:
            return cls(min(unscaled, 1), _MOST_DECIMAL_DIGITS)
        if is_short:
            return cls(unscaled, exponent)
        if not whole + part:
            return None
        return cls(_in_nano(unscaled, exponent), -_NANO_DIGITS)

    @property
    def nano(self) -> int:
        """Return the exact value in units of 10⁻⁹."""
        shift: int = 10 ** (self.exponent + _NANO_DIGITS)
        return self.unscaled * shift

    @property
    def approximate(self) -> float:
        """Return the double that the Kubernetes parser gives: the integer times the power of ten."""
        return float(self.unscaled) * _power_of_ten(self.exponent)


@lru_cache(maxsize=512)
def _power_of_ten(exponent: int) -> float:
    if exponent < 0:
        return float(f"1e{exponent}")
    # Go has a table of the powers up to 10³¹ and one of every thirty-second power.
    high, low = divmod(exponent, 32)
    return float(f"1e{high * 32}") * float(f"1e{low}")


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> Quantity:
    """Return the quantity of a text. Raise QuantityError for text that is none.

    A decimal above 10²⁵⁶ counts as 10²⁵⁶, a limit of this console that keeps every number a finite double.
    """
    match = _SHAPE.fullmatch(text[: LONGEST_TEXT + 1])
    if match is None or not 0 < len(text) <= LONGEST_TEXT:
        raise _refusal(text)
    digits = match["whole"], match["part"] or ""
    suffix = match["suffix"] or ""
    if suffix in _BINARY_EXPONENTS:
        amount = Quantity.of_binary(*digits, _BINARY_EXPONENTS[suffix])
    elif suffix in _DECIMAL_EXPONENTS:
        amount = Quantity.of_decimal(*digits, _DECIMAL_EXPONENTS[suffix])
    else:
        amount = Quantity.of_decimal(*digits, int(suffix[1:]))
    if amount is None:
        raise _refusal(text)
    if match["sign"] == "-":
        return Quantity(-amount.unscaled, amount.exponent)
    return amount


def _refusal(text: str) -> QuantityError:
    return QuantityError(
        f"invalid quantity {text[:40]!r}: must be a number such as 4, 0.5, 500m, 1Gi or 1E3"
    )


def _in_nano(unscaled: int, exponent: int) -> int:
    """Return a number in units of 10⁻⁹, rounded up."""
    dropped = -_NANO_DIGITS - exponent
    if dropped <= 0:
        return unscaled * int(10**-dropped)
    if dropped > len(str(unscaled)):
        return min(unscaled, 1)
    return -(-unscaled // int(10**dropped))


def quantity_words(value: str | float, name: str = "", *, exact: bool = False) -> str:
    """Return a quantity as people read it: "2,560" for 2560000m, "15.62Gi" for 16380000Ki.

    Memory, by the `name` or the suffix, has the largest binary unit. What is no quantity or a fraction such
    as 0.04000 stays as it is; with `exact` also what would be rounded.
    """
    is_binary = "memory" in name or "storage" in name or str(value).endswith("i")
    if (
        isinstance(value, str)
        and not is_binary
        and "." in value
        and value[-1].isdigit()
    ):
        return value
    try:
        amount = parse_quantity(value).approximate if isinstance(value, str) else value
    except QuantityError:
        return str(value)
    units = [1, *(1 << power for power in _BINARY_EXPONENTS.values() if is_binary)]
    place = max(0, sum(abs(amount) >= unit for unit in units) - 1)
    number = amount / units[place]
    if (isinstance(value, str) and 0 < abs(amount) < 1) or (
        exact and round(number, 2) != number
    ):
        return str(value)
    return f"{number:,.2f}".rstrip("0").rstrip(".") + ("", *_BINARY_EXPONENTS)[place]
