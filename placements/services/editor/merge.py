"""Three-way merge of a draft with what was saved since it was started."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fleetui.apimachinery.errors import Keys, format_path
from fleetui.apimachinery.yaml import load_documents
from fleetui.apimachinery.yaml_edit import Change, RemoveValue, SetValue, edit
from placements.services.editor.form import ABSENT, at


class Side(StrEnum):
    """Whose value is kept where both changed the same place."""

    MINE = "mine"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A place that both changed, each in another way; None: there is nothing there."""

    path: str
    base: Any
    mine: Any
    theirs: Any


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The merged text, and where both had changed the same."""

    text: str
    conflicts: tuple[Conflict, ...] = ()


def merge(text: str, *, base: Any, theirs: Any, keep: Side | None = None) -> MergeResult:
    """Put into a draft's text what changed from `base` to `theirs`.

    With conflicts the text stays as it is until `keep` decides whose value remains. Raise UneditableYaml.
    """
    mine = load_documents(text)[0].data
    own = [keys for keys, _ in _edits_between((), base, mine)]
    incoming = [(keys, new) for keys, new in _edits_between((), base, theirs) if at(mine, keys) != new]
    both = {
        keys
        for keys, _ in incoming
        # One is inside the other, or the same.
        if any(keys[: len(other)] == other[: len(keys)] for other in own)
    }
    conflicts = []
    for keys in dict.fromkeys(keys for keys, _ in incoming if keys in both):
        values = (at(document, keys) for document in (base, mine, theirs))
        conflicts.append(Conflict(format_path(keys), *(None if one is ABSENT else one for one in values)))
    if conflicts and keep is None:
        return MergeResult(text, tuple(conflicts))

    edits: list[Change] = []
    for keys, value in incoming:
        if keep is Side.THEIRS or keys not in both:
            current = at(mine, keys)
            if current is not ABSENT and (value is ABSENT or isinstance(current, (Mapping, list))):
                edits.append(RemoveValue(keys))
            if value is not ABSENT:
                edits.append(SetValue(keys, value))
    return MergeResult(edit(text, edits), tuple(conflicts))


def _edits_between(keys: Keys, before: Any, after: Any) -> Iterator[tuple[Keys, Any]]:
    """Yield what to set, or remove, to get from one manifest to the other; lists of two lengths whole."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _edits_between((*keys, key), before.get(key, ABSENT), after.get(key, ABSENT))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _edits_between((*keys, index), old, new)
    else:
        yield keys, after
