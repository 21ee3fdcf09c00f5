"""Carrying a draft over to what somebody else saved meanwhile: their changes go into its text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placements.drafting.fields import ABSENT, at
from placements.manifests import load_documents
from placements.scheduling.faults import Keys, format_path
from placements.yaml_edits import Change, Drop, Put, edit


class Side(StrEnum):
    """Whose value is to hold where both changed the same place."""

    MINE = "mine"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True)
class Overlap:
    """A place that both changed, each in another way; None: there is nothing there."""

    path: str
    base: Any
    mine: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class Rebased:
    """The text with their changes in it, and where both had changed the same."""

    text: str
    overlaps: tuple[Overlap, ...]


def rebase(text: str, *, base: Any, theirs: Any, keep: Side | None = None) -> Rebased:
    """Put into a draft's text what changed from `base` to `theirs`.

    Where the draft changed the same place, the text stays as it is until `keep` says whose value holds.
    Raises CannotEditError.
    """
    mine = load_documents(text)[0].data
    own = [keys for keys, _ in _changes((), base, mine)]
    coming = [(keys, new) for keys, new in _changes((), base, theirs) if at(mine, keys) != new]
    clashing = [keys for keys, _ in coming if any(_touch(keys, other) for other in own)]
    overlaps = tuple(_overlap(keys, base, mine, theirs) for keys in clashing)
    if overlaps and keep is None:
        return Rebased(text, overlaps)
    taken = [one for one in coming if keep is Side.THEIRS or one[0] not in clashing]
    return Rebased(edit(text, _edits(mine, taken)), overlaps)


def _changes(keys: Keys, before: Any, after: Any) -> Iterator[tuple[Keys, Any]]:
    """List what to set, or take away, to come from one document to the other; lists of two lengths whole."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _changes((*keys, key), before.get(key, ABSENT), after.get(key, ABSENT))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes((*keys, index), old, new)
    else:
        yield keys, after


def _touch(one: Keys, other: Keys) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _overlap(keys: Keys, *documents: Any) -> Overlap:
    values = (at(document, keys) for document in documents)
    return Overlap(format_path(keys), *(None if value is ABSENT else value for value in values))


def _edits(mine: Any, coming: list[tuple[Keys, Any]]) -> Iterator[Change]:
    for keys, value in coming:
        there = at(mine, keys)
        is_gone = there is ABSENT
        if value is ABSENT:
            yield from () if is_gone else (Drop(keys),)
        elif is_gone or not isinstance(there, (Mapping, list)):
            yield Put(keys, value)
        else:
            yield Drop(keys)
            yield Put(keys, value)
