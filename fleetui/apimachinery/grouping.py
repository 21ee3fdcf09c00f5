"""Values by what they have in common."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Group = TypeVar("Group", bound=Hashable)
Member = TypeVar("Member")


def grouped(pairs: Iterable[tuple[Group, Member]]) -> dict[Group, list[Member]]:
    """Return the values of each key, keys and values in the order in which they come."""
    groups: dict[Group, list[Member]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
