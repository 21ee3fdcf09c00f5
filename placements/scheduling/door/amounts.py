"""A number that may be written as a percentage, as the budgets of a rolling update are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """A plain number, or that many percent of a total."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Give the number meant, percentages rounded up (lifecycle A.2)."""
        return -(-total * self.number // 100) if self.is_percent else self.number

    def at_least_one_of(self, total: int) -> int:
        """Give the number meant, percentages rounded down, and never less than 1 (lifecycle B.5.4)."""
        return max(1, total * self.number // 100) if self.is_percent else max(1, self.number)

    def to_plain(self) -> int | str:
        """Give the form that a manifest has."""
        return str(self) if self.is_percent else self.number

    def __str__(self) -> str:
        """Write it as people do."""
        return f"{self.number}%" if self.is_percent else str(self.number)
