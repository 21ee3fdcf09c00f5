"""The fields of the editor's form: each stands for a place in the document, and knows what typing means."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placements.scheduling.faults import Keys, format_path
from placements.yaml_edits import Change, Drop, Put, Rename

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NOT_IN_ONE_LINE = re.compile(r"[\n\r\x85\u2028\u2029]")
ABSENT: Any = object()

Choices = tuple[tuple[str, str], ...]


class Sort(StrEnum):
    """What is typed into a field."""

    TEXT = "text"
    WHOLE = "whole"
    AMOUNT = "amount"
    CHOICE = "choice"
    WORDS = "words"
    LINES = "lines"
    ONE = "one"
    KEY = "key"


class Suggests(StrEnum):
    """What is offered while typing."""

    LABEL_KEYS = "label-keys"
    LABEL_VALUES = "label-values"
    PROPERTIES = "properties"
    CLUSTERS = "clusters"
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: `keys` is its place in the document, `value` what it shows.

    A field that is cleared leaves the document, unless it `stays`. `name` and `id` are those of the page.
    """

    keys: Keys
    label: str
    sort: Sort = Sort.TEXT
    value: str = ""
    choices: Choices = ()
    placeholder: str = ""
    stays: bool = False
    suggests: Suggests | None = None
    of_key: str = ""
    name: str = ""

    @property
    def id(self) -> str:
        """Give the id of the field in a page."""
        return slug(self.name)

    @property
    def is_a_choice(self) -> bool:
        """Tell whether what stands there is one of the choices."""
        return self.value in dict(self.choices)

    @property
    def list_id(self) -> str:
        """Give the id of the list of what is offered."""
        if self.suggests in (Suggests.LABEL_VALUES, Suggests.OBJECTS):
            return f"values-{self.id}"
        return str(self.suggests or "")

    def change(self, typed: str) -> Change | None:
        """Give the change of the document that typing this makes; None where it says the same."""
        if self.sort not in (Sort.WORDS, Sort.LINES):
            typed = _NOT_IN_ONE_LINE.sub(" ", typed)
        if _same(typed, self.value, self.sort):
            return None
        typed = typed.strip()
        if self.sort is Sort.KEY:
            return Rename(self.keys, typed)
        if not typed and not self.stays:
            return Drop(self.keys)
        return Put(self.keys, _read(typed, self.sort))


def slug(name: str) -> str:
    """Give an id that any selector takes."""
    return re.sub("[^A-Za-z0-9]+", "-", name).strip("-")


def _same(typed: str, shown: str, sort: Sort) -> bool:
    if sort in (Sort.WORDS, Sort.LINES):
        return bool(_read(typed, sort) == _read(shown, sort))
    return typed.strip() == shown.strip()


def _read(typed: str, sort: Sort) -> Any:
    """Read what was typed; what is no number stays text, so that the fault is told where it stands."""
    if sort in (Sort.WHOLE, Sort.AMOUNT):
        return int(typed) if _WHOLE.fullmatch(typed) else typed
    if sort is Sort.ONE:
        return [typed] if typed else []
    if sort in (Sort.WORDS, Sort.LINES):
        return [word.strip() for word in re.split(r"[,\n]", typed) if word.strip()]
    return typed


def field_at(data: object, keys: Keys, label: str, sort: Sort = Sort.TEXT, **more: Any) -> Iterator[Field]:
    """Make the field of a place in a document; none where a field could not show what stands there.

    `default` is what an absent value means, where the field shows that.
    """
    default = more.pop("default", "")
    shown = _shown(at(data, keys), sort)
    if shown is not None:
        name = more.pop("name", format_path(keys))
        yield Field(keys, label, sort, shown or default, name=name, **more)


def at(data: object, keys: Sequence[str | int]) -> Any:
    """Give what stands at a place, ABSENT where there is no such place."""
    for key in keys:
        is_item = isinstance(data, list) and isinstance(key, int) and key < len(data)
        if not is_item and not (isinstance(data, Mapping) and key in data):
            return ABSENT
        data = data[key]  # type: ignore[index]
    return data


def _shown(value: Any, sort: Sort) -> str | None:
    """Write a value the way its field shows it; None where it would not come back as it is."""
    if value is ABSENT or value is None:
        return ""
    if sort in (Sort.WORDS, Sort.LINES, Sort.ONE):
        return _joined(value, sort)
    if isinstance(value, (Mapping, list)):
        return None
    text = _word(value)
    return None if _NOT_IN_ONE_LINE.search(text) else text


def _joined(value: Any, sort: Sort) -> str | None:
    if not isinstance(value, list) or (sort is Sort.ONE and len(value) > 1):
        return None
    if any(isinstance(one, (Mapping, list)) or one is None for one in value):
        return None
    words = [_word(one) for one in value]
    odd = r"[\n\r\x85\u2028\u2029]" if sort is Sort.ONE else r"[,\n\r\x85\u2028\u2029]|^\s|\s$|^$"
    if any(re.search(odd, word) for word in words):
        return None
    return ("\n" if sort is Sort.LINES else ", ").join(words)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
