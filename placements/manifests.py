"""YAML and JSON text to plain data and back; the only importer of a YAML library.

Data is built from the parser's events on an explicit stack, so that no text, however nested or
however often it repeats itself, can cost more than its length. Lines are looked up again only when
there are faults to place.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from placements.scheduling.door.json_text import load_json
from placements.scheduling.door.plain import DEEPEST, MOST_VALUES
from placements.scheduling.door.scalars import Scalar, ScalarError, reads_as_text, resolve, resolve_tagged
from placements.scheduling.faults import Fault, Faults, Keys, format_path, split_path

MEBIBYTE = 1024 * 1024
MOST_DOCUMENTS = 100_000
MOST_REPEATED = 1_000_000
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ENDLESS_LINE = 2**31 - 1
_NO_KEY: Any = object()
_STRUCTURE_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text, or one item of a List: plain data, and where it came from."""

    data: Any
    number: int
    source: str = field(repr=False, compare=False, default="")
    within: Keys = ()

    def place_of(self, path: str) -> Keys:
        """Give where a path of this document, or item, stands in its text."""
        return (*self.within, *split_path(path))


def load_documents(
    text: str | bytes, *, max_bytes: int = 64 * MEBIBYTE, max_document_bytes: int | None = None
) -> list[Document]:
    """Read every document of a YAML or JSON text; raise Faults at the first thing that is wrong."""
    source = decoded(text, max_bytes)
    limit = max_document_bytes or max_bytes
    if source.lstrip()[:1] not in ("{", "["):
        return _load_yaml(source, limit)
    try:
        found = [Document(load_json(source), 1, source)]
    except Faults as faults:
        if faults.faults[0].code not in ("bad-syntax", "duplicate"):
            raise
        return _load_yaml(source, limit)
    _refuse_large(source, limit, number=1)
    return found


def attach_lines(found: Iterable[tuple[Document, Fault]]) -> list[Fault]:
    """Give faults with the lines on which they stand, where those can be found."""
    pairs = list(found)
    lines = lines_of([(document, fault.path) for document, fault in pairs])
    placed = zip(pairs, lines, strict=True)
    return [fault if fault.line else replace(fault, line=line) for (_, fault), line in placed]


def lines_of(paths: list[tuple[Document, str]]) -> list[int | None]:
    """Find the lines of paths in documents, or of the nearest thing around them.

    Each text is read once more, however many of its documents and items are asked for.
    """
    wanted: dict[str, dict[int, set[Keys]]] = {}
    for document, path in paths:
        place = document.place_of(path)
        outer = {place[:end] for end in range(len(place) + 1)}
        wanted.setdefault(document.source, {}).setdefault(document.number, set()).update(outer)
    lines = {source: _lines(source, places) for source, places in wanted.items()}
    return [_nearest(one.place_of(path), lines[one.source].get(one.number, {})) for one, path in paths]


def items_of(document: Document) -> list[Document]:
    """Give the items of a Kubernetes List as documents of their own, any other document as it is."""
    data = document.data
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in data:
        return [document]
    items = [] if data["items"] is None else data["items"]
    if not isinstance(items, list):
        raise _fault("wrong-type", "is not a list", keys=(*document.within, "items"), allowed="a list")
    typed = {} if kind == "List" else {"apiVersion": data.get("apiVersion"), "kind": kind[: -len("List")]}
    found: list[Document] = []
    for index, item in enumerate(items):
        whole = {**typed, **item} if isinstance(item, dict) else item
        found += items_of(replace(document, data=whole, within=(*document.within, "items", index)))
    return found


def dump_yaml(data: object) -> str:
    """Write plain data as YAML, keys in their order, so that any reader finds the same data in it."""
    looks: dict[str, Any] = {"default_flow_style": False, "allow_unicode": True, "width": _ENDLESS_LINE}
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, **looks))


def decoded(text: str | bytes, max_bytes: int) -> str:
    """Give a text as characters that YAML may hold. Raises Faults."""
    if len(text) > max_bytes:
        limit = max_bytes // MEBIBYTE
        raise _fault("too-large", f"has more than {limit} MiB", allowed=f"at most {limit} MiB")
    try:
        source = text.decode() if isinstance(text, bytes) else text
        source.encode()
    except UnicodeError as error:
        raise _fault("not-text", "is not UTF-8 text", allowed="UTF-8") from error
    source = source.removeprefix("\ufeff")
    odd = _UNPRINTABLE.search(source)
    if odd:
        line = source.count("\n", 0, odd.start()) + 1
        raise _fault("not-text", f"holds the control character {odd.group()!a}", line=line)
    return source


def _fault(code: str, message: str, *, keys: Keys = (), allowed: str = "", line: int | None = None) -> Faults:
    return Faults([Fault(format_path(keys), code, message, allowed, line)])


def _refuse_large(text: str, limit: int, *, number: int) -> None:
    if len(text) > limit or len(text.encode()) > limit:
        message = f"document {number} has more than {limit} bytes"
        raise _fault("too-large", message, allowed=f"at most {limit} bytes")


@dataclass(slots=True)
class _Open:
    """A mapping or list that is being filled."""

    into: dict[str, Any] | list[Any]
    anchor: str | None
    size_before: int
    key: Any = _NO_KEY
    height: int = 1


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A value that aliases may repeat, with what one repetition costs."""

    value: Any
    size: int
    height: int


class _Builder:
    """Builds the data of one document after another from events."""

    def __init__(self) -> None:
        self.finished: list[Any] = []
        self.nodes = 0
        self._start()

    def _start(self) -> None:
        self.root: Any = _NO_KEY
        self.is_blank = False
        self.stack: list[_Open] = []
        self.anchors: dict[str, _Anchored] = {}
        self.size = 0
        self.repeated = 0

    def take(self, event: Any) -> None:
        """Take the next event of the parser."""
        step = _STEPS.get(type(event))
        if step:
            step(self, event)

    def scalar(self, event: Any) -> None:
        self._count(event)
        value = event.value
        try:
            if event.tag is not None:
                value = resolve_tagged(event.tag, value)
            elif event.implicit[0]:
                value = resolve(value)
        except ScalarError as error:
            raise self._refuse(event, error.code, f"{event.value[:40]!r} {error}") from error
        size = 1 + len(event.value)
        self.size += size
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(value, size, 0)
        self.is_blank = not self.stack and not event.value and event.implicit[0]
        self._put(value, event)

    def alias(self, event: Any) -> None:
        anchored = self.anchors.get(event.anchor)
        if anchored is None:
            raise self._refuse(event, "bad-syntax", f"*{event.anchor[:40]} is not defined before it is used")
        self.size += anchored.size
        self.repeated += anchored.size
        if self.repeated > MOST_REPEATED:
            raise self._refuse(event, "too-large", "aliases repeat too much of the document")
        self._refuse_depth(event, anchored.height)
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, anchored.height + 1)
        self._put(anchored.value, event)

    def close(self, event: Any) -> None:
        closed = self.stack.pop()
        if closed.anchor:
            size = self.size - closed.size_before
            self.anchors[closed.anchor] = _Anchored(closed.into, size, closed.height)
        if self.stack:
            self.stack[-1].height = max(self.stack[-1].height, closed.height + 1)
        self._put(closed.into, event)

    def end_document(self, event: Any) -> None:
        self.finished.append(_NO_KEY if self.is_blank else self.root)
        if len(self.finished) > MOST_DOCUMENTS:
            raise self._refuse(event, "too-many", f"there are more than {MOST_DOCUMENTS} documents")
        self._start()

    def open(self, event: Any) -> None:
        self._count(event)
        if event.tag not in _STRUCTURE_TAGS:
            raise self._refuse(event, "unknown-tag", f"has the unknown tag {event.tag[:60]}")
        self._refuse_depth(event, 1)
        if self.stack and isinstance(self.stack[-1].into, dict) and self.stack[-1].key is _NO_KEY:
            raise self._refuse(event, "wrong-type", "has a list or an object as a key", "text keys only")
        into: dict[str, Any] | list[Any] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        self.stack.append(_Open(into, event.anchor, self.size))
        self.size += 1

    def _put(self, value: Any, event: Any) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.into, list):
            top.into.append(value)
        elif top.key is _NO_KEY:
            top.key = self._key(value, top.into, event)
        else:
            top.into[top.key] = value
            top.key = _NO_KEY

    def _key(self, value: Scalar, into: dict[str, Any], event: Any) -> str:
        if not isinstance(value, str):
            word = getattr(event, "value", "an alias")[:40]
            raise self._refuse(
                event, "wrong-type", f"has the key {word!r}, which is not text", "keys in quotes"
            )
        if value in into:
            raise self._refuse(event, "duplicate", "stands twice in the same object", "each key once", value)
        if value == "<<" and getattr(event, "implicit", (False,))[0]:
            raise self._refuse(event, "not-supported", "has a merge key (<<)", "the fields written out")
        return sys.intern(value)

    def _count(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > MOST_VALUES:
            raise self._refuse(event, "too-large", "holds too many values", f"at most {MOST_VALUES} values")

    def _refuse_depth(self, event: Any, height: int) -> None:
        if len(self.stack) + height > DEEPEST:
            raise self._refuse(event, "too-deep", "is nested too deeply", f"at most {DEEPEST} levels")

    def _refuse(self, event: Any, code: str, message: str, allowed: str = "", *inside: str) -> Faults:
        line = event.start_mark.line + 1
        return _fault(code, message, keys=(*self._place(), *inside), allowed=allowed, line=line)

    def _place(self) -> Iterator[str | int]:
        for level in self.stack:
            if isinstance(level.into, list):
                yield len(level.into)
            elif level.key is not _NO_KEY:
                yield level.key


_STEPS = {
    yaml.ScalarEvent: _Builder.scalar,
    yaml.AliasEvent: _Builder.alias,
    yaml.SequenceStartEvent: _Builder.open,
    yaml.MappingStartEvent: _Builder.open,
    yaml.SequenceEndEvent: _Builder.close,
    yaml.MappingEndEvent: _Builder.close,
    yaml.DocumentEndEvent: _Builder.end_document,
}


def _load_yaml(source: str, limit: int) -> list[Document]:
    builder = _Builder()
    begun = 0
    try:
        for event in yaml.parse(source, Loader=yaml.CSafeLoader):
            builder.take(event)
            if isinstance(event, yaml.DocumentEndEvent) and event.end_mark:
                _refuse_large(source[begun : event.end_mark.index], limit, number=len(builder.finished))
                begun = event.end_mark.index
    except yaml.YAMLError as error:
        raise _syntax_fault(error, last_line=source.count("\n") + 1) from error
    numbered = enumerate(builder.finished, start=1)
    return [Document(data, number, source) for number, data in numbered if data is not _NO_KEY]


def _syntax_fault(error: yaml.YAMLError, *, last_line: int) -> Faults:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be read"
    line = min(mark.line + 1, last_line) if mark else None
    return _fault("bad-syntax", f"is not valid YAML: {problem}", line=line)


def _nearest(place: Keys, lines: dict[Keys, int]) -> int | None:
    return next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), None)


def _lines(source: str, wanted: dict[int, set[Keys]]) -> dict[int, dict[Keys, int]]:
    """Read the events of a text again and note the lines of the wanted places, by document."""
    lines: dict[int, dict[Keys, int]] = {}
    walker, number, last = _Walker(set(), {}), 0, max(wanted)
    with suppress(yaml.YAMLError):  # JSON that is not YAML: the lines found so far have to do
        for event in yaml.parse(source, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                number += 1
                walker = _Walker(wanted.get(number, set()), lines.setdefault(number, {}))
            if number > last or (number == last and walker.lines.keys() == wanted[last]):
                break
            walker.take(event)
    return lines


@dataclass(slots=True)
class _Spot:
    """A mapping or list that is being walked through; without a place, nothing inside is wanted."""

    place: Keys | None
    is_mapping: bool
    key: str | None = None
    index: int = 0


class _Walker:
    """Follows events, and knows where it is only as long as that is wanted."""

    def __init__(self, wanted: set[Keys], lines: dict[Keys, int]) -> None:
        self.wanted = wanted
        self.lines = lines
        self.stack: list[_Spot] = []

    def take(self, event: Any) -> None:
        """Take the next event of the parser."""
        if isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            place = self._step(event)
            if isinstance(event, yaml.CollectionStartEvent):
                self.stack.append(_Spot(place, isinstance(event, yaml.MappingStartEvent)))

    def _step(self, event: Any) -> Keys | None:
        """Give the place of a node, and note its line; a key stands for the value to come."""
        if not self.stack:
            return self._note((), event)
        spot = self.stack[-1]
        if spot.place is None:
            return None
        if not spot.is_mapping:
            spot.index += 1
            return self._note((*spot.place, spot.index - 1), event)
        if spot.key is None:
            spot.key = str(getattr(event, "value", ""))
            self._note((*spot.place, spot.key), event)
            return None
        place, spot.key = (*spot.place, spot.key), None
        return self._note(place, event)

    def _note(self, place: Keys, event: Any) -> Keys | None:
        if place not in self.wanted:
            return None
        self.lines.setdefault(place, event.start_mark.line + 1)
        return place


class _Dumper(yaml.CSafeDumper):
    """Writes no aliases, and quotes whatever some reader might not take for text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 -- the signature is PyYAML's
        """Write everything out: readers need not know aliases."""
        return True


def _write_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if reads_as_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)
