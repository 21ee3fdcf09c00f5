"""YAML and JSON text to plain data and back; the only importer of a YAML library.

Data is built from the parser's events on an explicit stack, so that no text costs more than its length.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import yaml

from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    faults_of,
    format_path,
    raise_errors,
    split_path,
)
from fleetui.apimachinery.model import (
    DEEPEST,
    MOST_VALUES,
    mapping_at,
    plain_problems,
    quote_value,
)
from fleetui.apimachinery.yaml_hints import hint_of

LONGEST_NUMBER = 64
TOO_MANY = "Too large: holds too many values"
_CUT_OFF = "; the text ends here, it may be truncated"


_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def load_json(text: str) -> object:
    """Return one JSON value. Raise InvalidManifest."""
    # Counted before they are built: 30 MB of empty objects are 2.3 GB of memory.
    if _most_values(text) >= MOST_VALUES:
        structure = "".join(_JSON_STRING.sub("0", text).split())
        if _most_values(structure) >= MOST_VALUES:
            raise _fault("too-large", TOO_MANY, allowed=f"at most {MOST_VALUES} values")
    try:
        data: object = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_int=partial(_number, int),
            parse_float=partial(_number, float),
            parse_constant=refuse_constant,
        )
    except json.JSONDecodeError as error:
        is_cut_off = bool(text.strip()) and error.pos >= len(text.rstrip())
        message = f"Invalid JSON: {error.msg}{_CUT_OFF if is_cut_off else ''}"
        raise _fault("bad-syntax", message, line=error.lineno) from error
    except RecursionError as error:
        message, allowed = "Too deep: nested too deeply", f"at most {DEEPEST} levels"
        raise _fault("too-deep", message, allowed=allowed) from error
    if problems := plain_problems(data):
        raise faults_of(problems, None)
    return data


def _most_values(text: str) -> int:
    """Count what starts a value after the first one: commas, and brackets that are not empty."""
    return sum(map(text.count, ",[{")) - text.count("[]") - text.count("{}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys: set[str] = set()
        twice = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value]
        raise _fault("duplicate", f"Duplicate key {json.dumps(twice[:60])}")
    return mapping


def _number(convert: Callable[[str], float], digits: str) -> float:
    if len(digits) > LONGEST_NUMBER or not math.isfinite(number := convert(digits)):
        raise _fault(
            "out-of-range",
            f"Invalid value: {digits[:20]}…: number is too long or too large",
        )
    return number


def refuse_constant(name: str) -> float:
    message, allowed = (
        f"Invalid value: {name}: must be a finite number",
        "a finite number",
    )
    raise _fault("out-of-range", message, allowed=allowed)


Scalar = str | int | float | bool | None

_WORDS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= {
    form: True
    for word in ("true", "yes", "on")
    for form in (word, word.title(), word.upper())
}
_WORDS |= {
    form: False
    for word in ("false", "no", "off")
    for form in (word, word.title(), word.upper())
}
_INTEGER = re.compile(
    r"[-+]?(?:0b_*[01][01_]*|0o_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|[0-9][0-9_]*)"
)
_OCTAL = re.compile(r"[-+]?0[0-7]*")
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_FIRST = frozenset("0123456789+-.~ntfyoNTFYO")


class ScalarError(ValueError):
    """A YAML scalar that is refused; the message follows the scalar."""

    def __init__(self, message: str, *, code: str = "wrong-type") -> None:
        super().__init__(message)
        self.code = code


@lru_cache(maxsize=8192)
def resolve(word: str) -> Scalar:
    """Return the value of an unquoted scalar. Raise ScalarError for numbers that nothing can hold."""
    if word and word[0] not in _FIRST:
        return word
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        digits = word.replace("_", "").lower()
        _refuse_long(digits)
        if _OCTAL.fullmatch(digits):
            return int(digits, 8)
        if digits.lstrip("+-").isdigit():
            return int(digits)
        return int(digits, 0)
    if _FRACTION.fullmatch(word):
        _refuse_long(word)
        number = float(word)
        if not math.isfinite(number):
            raise ScalarError("must be a finite number", code="out-of-range")
        return number
    if _ENDLESS.fullmatch(word):
        raise ScalarError("must be a finite number", code="out-of-range")
    return word


def _refuse_long(digits: str) -> None:
    if len(digits) > LONGEST_NUMBER:
        raise ScalarError("number is too long", code="out-of-range")


def reads_as_text(word: str) -> bool:
    """Return whether an unquoted scalar is text to every reader of YAML 1.1 and 1.2."""
    try:
        return isinstance(resolve(word), str) and word.lower() not in (
            "y",
            "n",
            "=",
            "<<",
        )
    except ScalarError:
        return False


def resolve_tagged(tag: str, word: str) -> Scalar:
    """Return the value of a scalar with an explicit tag. Raise ScalarError if they do not match."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind in ("str", "!"):
        return word
    value = resolve(word)
    fits = _FITS.get(kind)
    if fits is None:
        raise ScalarError(f"unknown tag {tag[:60]}", code="unknown-tag")
    if not fits(value):
        raise ScalarError(f"does not match its tag !!{kind}")
    return (
        float(value) if kind == "float" and isinstance(value, (int, float)) else value
    )


_FITS: dict[str, Callable[[Scalar], bool]] = {
    "null": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    ),
}


MEBIBYTE = 1024 * 1024
LARGEST_UPLOAD = 64 * MEBIBYTE
"""Of a file, a text or a request body with manifests, at every entry point."""
MOST_DOCUMENTS = 100_000
MOST_REPEATED = 1_000_000
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
_ENDLESS_LINE = 2**31 - 1
_NO_KEY: Any = object()
_STRUCTURE_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text, or one item of a List: plain data, and where it came from."""

    data: Any
    number: int
    source: str = field(repr=False, compare=False, default="")
    path_prefix: Keys = ()

    def place_of(self, path: str) -> Keys:
        """Return the keys from the root of the text to a path of this document or item."""
        return (*self.path_prefix, *split_path(path))


def load_documents(
    text: str | bytes,
    *,
    max_bytes: int = LARGEST_UPLOAD,
    max_document_bytes: int | None = None,
) -> list[Document]:
    """Return every document of a YAML or JSON text. Raise InvalidManifest at the first error."""
    source = decoded(text, max_bytes)
    limit = max_document_bytes or max_bytes
    if source.lstrip()[:1] not in ("{", "["):
        return _load_yaml(source, limit)
    try:
        documents = [Document(load_json(source), 1, source)]
    except InvalidManifest as invalid:
        if invalid.errors[0].code not in ("bad-syntax", "duplicate"):
            raise
        return _load_yaml(source, limit)
    _refuse_large(source, limit, number=1)
    return documents


def attach_lines(errors: Iterable[tuple[Document, FieldError]]) -> list[FieldError]:
    pairs = list(errors)
    lines = lines_of([(document, error.path) for document, error in pairs])
    placed = zip(pairs, lines, strict=True)
    return [replace(error, line=error.line or line) for (_, error), line in placed]


def lines_of(paths: list[tuple[Document, str]]) -> list[int | None]:
    """Return the line of each path, or of the nearest thing around it; None if there is none.

    Each text is parsed again once, however many of its documents and items are named.
    """
    wanted: dict[str, dict[int, set[Keys]]] = {}
    for document, path in paths:
        place = document.place_of(path)
        outer = {place[:end] for end in range(len(place) + 1)}
        wanted.setdefault(document.source, {}).setdefault(
            document.number, set()
        ).update(outer)
    lines = {source: _lines(source, places) for source, places in wanted.items()}
    numbers = []
    for document, path in paths:
        place, known = (
            document.place_of(path),
            lines[document.source].get(document.number, {}),
        )
        outwards = (place[:end] for end in range(len(place), -1, -1))
        numbers.append(next((known[one] for one in outwards if one in known), None))
    return numbers


def items_of(document: Document) -> list[Document]:
    """Return the items of a Kubernetes List as documents of their own, any other document as it is."""
    data = document.data
    kind = kind_of(data)
    _refuse_truncated_list(document)
    if kind is None or not kind.endswith("List") or "items" not in data:
        return [document]
    items = data["items"]
    if items is None:
        return []
    if not isinstance(items, list):
        raise _fault(
            "wrong-type",
            "Invalid value: must be a list",
            keys=(*document.path_prefix, "items"),
            allowed="a list",
        )
    typed = {}
    if kind != "List":
        typed = {"apiVersion": data.get("apiVersion"), "kind": kind[: -len("List")]}
    documents: list[Document] = []
    for index, item in enumerate(items):
        whole = {**typed, **item} if isinstance(item, dict) else item
        prefix = (*document.path_prefix, "items", index)
        documents += items_of(replace(document, data=whole, path_prefix=prefix))
    return documents


def _refuse_truncated_list(document: Document) -> None:
    """Raise InvalidManifest for a List that is cut off, or that is one page of a longer one.

    kubectl writes `items` before `kind`, so that a file that was cut off has no kind.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        return
    rest = mapping_at(data, "metadata")
    keys, message = document.path_prefix, ""
    if data.get("apiVersion") and data.keys().isdisjoint({"kind", "spec", "data"}):
        message = f"The List is truncated: it ends after {len(data['items'])} items, without a kind"
    elif str(data.get("kind")).endswith("List") and (
        rest.get("continue") or rest.get("remainingItemCount")
    ):
        more = rest.get("remainingItemCount")
        more = f"{more} more items" if more else "more items"
        keys = (*keys, "metadata", "continue")
        message = f"The List is truncated: it has {len(data['items'])} items, and {more} follow"
    if message:
        raise _fault("truncated", message, keys=keys, allowed="a complete List")


def dump_yaml(data: object) -> str:
    """Write plain data as YAML, keys in their order, so that any reader finds the same data in it."""
    style: dict[str, Any] = {
        "default_flow_style": False,
        "allow_unicode": True,
        "width": _ENDLESS_LINE,
    }
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, **style))


def decoded(text: str | bytes, max_bytes: int) -> str:
    """Return a text as characters that YAML may contain. Raise InvalidManifest."""
    try:
        content = text.encode() if isinstance(text, str) else text
        if len(content) > max_bytes:
            limit = max_bytes // MEBIBYTE
            raise _fault(
                "too-large",
                f"Too large: must be at most {limit} MiB",
                allowed=f"at most {limit} MiB",
            )
        source = content.decode()
    except UnicodeError as error:
        raise _fault("not-text", "Must be UTF-8 text", allowed="UTF-8") from error
    source = source.removeprefix("\ufeff")
    odd = _UNPRINTABLE.search(source)
    if odd:
        raise _fault(
            "not-text",
            f"Must not contain control characters: {odd.group()!a}",
            line=source.count("\n", 0, odd.start()) + 1,
        )
    return source


def _fault(
    code: str,
    message: str,
    *,
    keys: Keys = (),
    allowed: str = "",
    line: int | None = None,
) -> InvalidManifest:
    return InvalidManifest.of(format_path(keys), code, message, allowed, line)


def _refuse_large(text: str, limit: int, *, number: int) -> None:
    if len(text) > limit or len(text.encode()) > limit:
        raise _fault(
            "too-large",
            f"Too large: document {number} must be at most {limit} bytes",
            allowed=f"at most {limit} bytes",
        )


@dataclass(slots=True)
class _Open:
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

    @property
    def awaits_value(self) -> bool:
        return bool(self.stack) and self.stack[-1].key is not _NO_KEY

    def place(self) -> Keys:
        """Return the place of the next value, or of what is open if that is a mapping before its next key."""
        place = [
            len(level.into) if isinstance(level.into, list) else level.key
            for level in self.stack
        ]
        return tuple(key for key in place if key is not _NO_KEY)

    def take(self, event: Any) -> None:
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
            raise self._refuse(
                event, error.code, f"Invalid value: {event.value[:40]!r}: {error}"
            ) from error
        size = 1 + len(event.value)
        self.size += size
        if event.anchor:
            self.anchors[event.anchor] = _Anchored(value, size, 0)
        self.is_blank = not self.stack and not event.value and event.implicit[0]
        self._put(value, event)

    def alias(self, event: Any) -> None:
        anchored = self.anchors.get(event.anchor)
        if anchored is None:
            raise self._refuse(
                event,
                "bad-syntax",
                f"*{event.anchor[:40]} must be defined before it is used",
            )
        self.size += anchored.size
        self.repeated += anchored.size
        if self.repeated > MOST_REPEATED:
            raise self._refuse(
                event, "too-large", "Too large: aliases repeat too much of the document"
            )
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
            raise self._refuse(
                event,
                "too-many",
                f"Too many: must have at most {MOST_DOCUMENTS} documents",
            )
        self._start()

    def open(self, event: Any) -> None:
        self._count(event)
        if event.tag not in _STRUCTURE_TAGS:
            raise self._refuse(event, "unknown-tag", f"Unknown tag {event.tag[:60]}")
        self._refuse_depth(event, 1)
        if (
            self.stack
            and isinstance(self.stack[-1].into, dict)
            and self.stack[-1].key is _NO_KEY
        ):
            raise self._refuse(
                event, "wrong-type", "Keys must be strings", "strings as keys"
            )
        into: dict[str, Any] | list[Any] = (
            [] if isinstance(event, yaml.SequenceStartEvent) else {}
        )
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
            if not isinstance(value, str):
                word = getattr(event, "value", "an alias")[:40]
                raise self._refuse(
                    event,
                    "wrong-type",
                    f"Keys must be strings: {word!r}",
                    "keys in quotes",
                )
            if value in top.into:
                raise self._refuse(
                    event,
                    "duplicate",
                    f"Duplicate key {json.dumps(value[:60])}",
                    "",
                    value,
                )
            if value == "<<" and getattr(event, "implicit", (False,))[0]:
                raise self._refuse(
                    event,
                    "not-supported",
                    "Merge keys (<<) are not supported",
                    "the fields written out",
                )
            top.key = sys.intern(value)
        else:
            top.into[top.key] = value
            top.key = _NO_KEY

    def _count(self, event: Any) -> None:
        self.nodes += 1
        if self.nodes > MOST_VALUES:
            raise self._refuse(
                event, "too-large", TOO_MANY, f"at most {MOST_VALUES} values"
            )

    def _refuse_depth(self, event: Any, height: int) -> None:
        if len(self.stack) + height > DEEPEST:
            raise self._refuse(
                event,
                "too-deep",
                "Too deep: nested too deeply",
                f"at most {DEEPEST} levels",
            )

    def _refuse(
        self, event: Any, code: str, message: str, allowed: str = "", *inside: str
    ) -> InvalidManifest:
        return _fault(
            code,
            message,
            keys=(*self.place(), *inside),
            allowed=allowed,
            line=event.start_mark.line + 1,
        )


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
    start = 0
    try:
        for event in yaml.parse(source, Loader=yaml.CSafeLoader):
            builder.take(event)
            if isinstance(event, yaml.DocumentEndEvent) and event.end_mark:
                _refuse_large(
                    source[start : event.end_mark.index],
                    limit,
                    number=len(builder.finished),
                )
                start = event.end_mark.index
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "cannot be parsed"
        mark, hint = hint_of(error)
        if not hint and mark is not None and mark.index >= len(source.rstrip()):
            hint = _CUT_OFF
        line = min(mark.line + 1, source.count("\n") + 1) if mark else None
        raise _fault(
            "bad-syntax", f"Invalid YAML: {problem}{hint}", line=line
        ) from error
    return [
        Document(one, at, source)
        for at, one in enumerate(builder.finished, 1)
        if one is not _NO_KEY
    ]


def _lines(source: str, wanted: dict[int, set[Keys]]) -> dict[int, dict[Keys, int]]:
    """Build a text again and record the lines of the wanted places, by document."""
    lines: dict[int, dict[Keys, int]] = {}
    builder, last = _Builder(), max(wanted)
    with suppress(
        yaml.YAMLError, InvalidManifest
    ):  # JSON that is not YAML: the lines up to here have to do
        for event in yaml.parse(source, Loader=yaml.CSafeLoader):
            number, start = len(builder.finished) + 1, event.start_mark
            places = lines.setdefault(number, {})
            if number > last or (number == last and places.keys() == wanted[last]):
                break
            place = builder.place()
            builder.take(event)
            if start and isinstance(event, yaml.NodeEvent):
                # A key marks the value that follows; anything else was put where the builder was.
                if isinstance(event, yaml.ScalarEvent) and builder.awaits_value:
                    place = builder.place()
                if place in wanted.get(number, ()):
                    places.setdefault(place, start.line + 1)
    return lines


class _Dumper(yaml.CSafeDumper):
    """Writes no aliases, and quotes whatever some reader might not take for text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 -- the signature is PyYAML's
        return True

    def represent_text(self, text: str) -> Any:
        style = None
        if "\n" in text:
            style = "|"
        elif not reads_as_text(text):
            style = "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_multi_representer(dict, yaml.representer.SafeRepresenter.represent_dict)
_Dumper.add_representer(str, _Dumper.represent_text)


Value = TypeVar("Value")


@dataclass(frozen=True)
class Read(Generic[Value]):
    """A value, and the document that it was read from."""

    item: Document
    value: Value


def items_in(source: bytes | str) -> list[Document]:
    """Return the documents of a file, or items of its Lists, without empty ones. Raise InvalidManifest."""
    documents: list[Document] = []
    for document in load_documents(source):
        # A bare list, such as the `.items` of a List, is recognized by the kinds of its entries.
        if isinstance(document.data, list) and any(map(kind_of, document.data)):
            documents += entries_of(document)
        else:
            documents += items_of(document)
    return [item for item in documents if item.data is not None]


def entries_of(document: Document) -> list[Document]:
    entries = enumerate(document.data)
    return [
        replace(document, data=entry, path_prefix=(*document.path_prefix, at))
        for at, entry in entries
    ]


def read_each(
    items: list[Document], read: Callable[[Any], Value | None]
) -> list[Read[Value]]:
    """Return what `read` returns for every item, without None. Raise InvalidManifest with all their errors.

    Errors have lines, and the name of their item in front if there are several items.
    """
    reads: list[Read[Value]] = []
    errors: list[tuple[Document, FieldError]] = []
    for item in items:
        try:
            value = read(item.data)
        except InvalidManifest as invalid:
            name = (written_name(item.data) or f"document {item.number}")[:63]
            prefix = f"{name}: " if len(items) > 1 else ""
            errors += (
                (item, replace(error, message=f"{prefix}{error.message}"))
                for error in invalid.errors
            )
            continue
        if value is not None:
            reads.append(Read(item, value))
    raise_errors(attach_lines(errors))
    return reads


def refuse_twice(
    reads: list[Read[Value]], names_of: Callable[[Value], list[str]], path: str
) -> None:
    """Raise InvalidManifest for every name that an earlier item has already, with its line."""
    earlier: set[str] = set()
    errors: list[tuple[Document, FieldError]] = []
    for read in reads:
        for name in names_of(read.value):
            if name in earlier:
                errors.append(
                    (
                        read.item,
                        FieldError(
                            path,
                            "duplicate",
                            f"Duplicate value: {quote_value(name)}",
                            "unique names",
                        ),
                    )
                )
            earlier.add(name)
    raise_errors(attach_lines(errors))


def written_name(data: Any) -> str | None:
    """Return the name in a document or plain object that may still be malformed."""
    fields = mapping_at(data)
    if isinstance(fields.get("metadata"), dict):
        fields = fields["metadata"]
    name = fields.get("name")
    return name if isinstance(name, str) else None


def kind_of(data: Any) -> str | None:
    kind = mapping_at(data).get("kind")
    return kind if isinstance(kind, str) else None
