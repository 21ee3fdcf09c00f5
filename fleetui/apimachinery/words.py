"""Long lists in texts: the first names or lines, and how many more there are."""

from collections.abc import Iterable


def names_and_more(names: Iterable[str], most: int) -> str:
    """Return the first names, and the number of the others: "a, b and 1,200 more"."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def first_lines(lines: Iterable[str], most: int) -> list[str]:
    lines = list(lines)
    return [*lines[:most], f"… and {len(lines) - most:,} more"] if len(lines) > most else lines
