"""The values that several requirements on one property leave possible, in units of 10⁻⁹."""

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `low` to `high`, either end open-ended if None, without the `excluded` ones."""

    low: int | None = None
    high: int | None = None
    excluded: frozenset[int] = frozenset()

    def narrowed(self, operator: str, bound: int) -> "Interval":
        """Give what is left under one more requirement (`Gt Ge Eq Ne Lt Le`)."""
        if operator == "Ne":
            return replace(self, excluded=self.excluded | {bound})
        low = {"Gt": bound + 1, "Ge": bound, "Eq": bound}.get(operator)
        high = {"Lt": bound - 1, "Le": bound, "Eq": bound}.get(operator)
        return replace(self, low=_tighter(max, self.low, low), high=_tighter(min, self.high, high))

    @property
    def is_empty(self) -> bool:
        """Tell whether no value is left."""
        if self.low is None or self.high is None:
            return False
        within = sum(1 for value in self.excluded if self.low <= value <= self.high)
        return self.high - self.low + 1 <= within


def _tighter(choose: Callable[[int, int], int], first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return choose(first, second)
