"""Import of clusters: YAML, JSON and CSV files to MemberCluster documents.

A CSV file has a row for each cluster; a label without a value is `key=` in the column `labels`:

    name,labels,taints,label:region,property:example.com/cost
    bravelion,env=prod;system=critical,gpu=true:NoSchedule,east,0.25
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from clusters.fleet import NO_SCHEDULE
from clusters.manifest import MemberClusterManifest, parse_member
from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    format_path,
    split_path,
)
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.apimachinery.model import quote_value
from fleetui.apimachinery.yaml import (
    LARGEST_UPLOAD,
    MOST_DOCUMENTS,
    Document,
    decoded,
    entries_of,
    items_in,
    lines_of,
    load_json,
    written_name,
)


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One cluster of a source, with the errors found while reading.

    The line is known, or looked up in `item`. `place_of` maps the keys of the plain form, or of a
    MemberCluster, to the path in the source.
    """

    data: Any
    line: int | None = None
    item: Document | None = None
    errors: tuple[FieldError, ...] = ()
    place_of: Callable[[Keys], str] = format_path


PLAIN_FIELDS = ("name", "labels", "taints", "properties", "resourceUsage")
_OF_DOCUMENTS = frozenset({"apiVersion", "kind", "metadata", "spec"})
_PLACES: Mapping[tuple[str, str], str] = {
    ("metadata", "name"): "name",
    ("metadata", "labels"): "labels",
    ("spec", "taints"): "taints",
    ("status", "properties"): "properties",
    ("status", "resourceUsage"): "resourceUsage",
}


def is_plain(data: Any) -> bool:
    return isinstance(data, dict) and _OF_DOCUMENTS.isdisjoint(data)


def member_document(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Write the MemberCluster of a plain object; what is malformed stays so, for `parse_member` to find."""
    fields = {key: value for key, value in plain.items() if value not in (None, {}, [])}
    name = fields.get("name")
    labels = {"labels": fields["labels"]} if "labels" in fields else {}
    taints = {"taints": fields["taints"]} if "taints" in fields else {}
    if isinstance(fields.get("taints"), list):
        taints["taints"] = [
            {"effect": NO_SCHEDULE, **one} if isinstance(one, dict) else one
            for one in fields["taints"]
        ]
    status = {}
    if "properties" in fields:
        values = fields["properties"]
        is_object = isinstance(values, dict)
        status["properties"] = (
            {key: {"value": one} for key, one in values.items()}
            if is_object
            else values
        )
    if "resourceUsage" in fields:
        status["resourceUsage"] = fields["resourceUsage"]
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": name, **labels},
        "spec": {
            "identity": {
                "kind": "ServiceAccount",
                "name": f"fleet-member-{name}",
                "namespace": "fleet-system",
                "apiGroup": "",
            },
            **taints,
        },
        **({"status": status} if status else {}),
    }


def unknown_fields(plain: Mapping[str, Any]) -> list[FieldError]:
    allowed = ", ".join(PLAIN_FIELDS)
    message = "is not a field of a cluster in the plain form"
    unknown = (key for key in plain if key not in PLAIN_FIELDS)
    return [
        FieldError(format_path((key,)), "unknown-field", message, allowed)
        for key in unknown
    ]


def plain_place(keys: Keys) -> Keys:
    field = _PLACES.get((str(keys[0]), str(keys[1]))) if len(keys) > 1 else None
    if field is None:
        return keys
    inner = keys[2:3] if field == "properties" else keys[2:]
    return (field, *inner)


COLUMNS = "name, labels, taints, label:<key>, property:<name>; divided by commas"
_LABEL, _PROPERTY = "label:", "property:"
_TAINT = "key=value:NoSchedule, divided by semicolons"
_PAIR = "key=value, divided by semicolons"


def looks_like_table(text: str) -> bool:
    """Return whether the first non-empty line is a header with a column `name`."""
    first = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    with suppress(csv.Error):
        return any(
            cell.strip() == "name" for row in csv.reader([first]) for cell in row
        )
    return False


def read_table(text: str) -> list[ImportEntry]:
    """Read the rows of a table. Raises InvalidManifest when there is no column of names.

    Other errors of the table are entries without data, because the rows report theirs, too.
    """
    rows = _rows(text)
    line, cells = next(rows, (1, []))
    header = _Header(line, tuple(cell.strip() for cell in cells))
    if "name" not in header.cells:
        raise InvalidManifest(
            [
                FieldError("", "required", "has no column `name`", COLUMNS, line),
                *header.errors,
            ]
        )
    entries = [ImportEntry(None, line, errors=header.errors)] if header.errors else []
    try:
        entries += (header.entry(at, cells) for at, cells in rows)
    except InvalidManifest as broken:
        entries.append(ImportEntry(None, errors=broken.errors))
    return entries


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows, each with its first line. Raises InvalidManifest."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    for count in range(MOST_DOCUMENTS + 2):
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InvalidManifest.of(
                "", "bad-syntax", f"is not a table: {error}", "", line
            ) from error
        if cells is None:
            return
        if count > MOST_DOCUMENTS:
            break
        if any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1
    raise InvalidManifest.of(
        "", "too-many", f"has more than {MOST_DOCUMENTS} rows", "", line
    )


@dataclass(frozen=True)
class _Header:
    """The columns of a table."""

    line: int
    cells: tuple[str, ...]

    @cached_property
    def errors(self) -> tuple[FieldError, ...]:
        """Return the errors of the columns; a column without a name may be empty, so its rows report it."""
        counts = Counter(filter(None, self.cells))
        twice = (
            FieldError(
                format_path((one,)),
                "duplicate",
                "is a column twice",
                "each once",
                self.line,
            )
            for one, count in counts.items()
            if count > 1
        )
        return (*filter(None, (self._fault(one) for one in counts)), *twice)

    @cached_property
    def readable(self) -> frozenset[str]:
        return frozenset(one for one in self.cells if one and not self._fault(one))

    def _fault(self, column: str) -> FieldError | None:
        problem = None
        if column.startswith(_LABEL):
            problem = fields.label_key_problem(column.removeprefix(_LABEL))
        elif column.startswith(_PROPERTY):
            problem = fields.property_name_problem(column.removeprefix(_PROPERTY))
        elif column not in ("name", "labels", "taints"):
            message = f"{quote_value(column)} is not a column of clusters"
            return FieldError(
                format_path((column,)), "unknown-field", message, COLUMNS, self.line
            )
        if problem is None:
            return None
        message = f"{quote_value(column)} {problem.words}"
        return FieldError(
            format_path((column,)), problem.code, message, COLUMNS, self.line
        )

    def entry(self, line: int, cells: list[str]) -> ImportEntry:
        row = _Row(self, line, cells)
        return ImportEntry(
            row.plain(), line, errors=tuple(row.errors), place_of=self.column_of
        )

    def column_of(self, keys: Keys) -> str:
        """Return the path of the column for some keys of the plain form."""
        field, *inner = keys
        column = str(field)
        if field == "labels" and inner and f"{_LABEL}{inner[0]}" in self.cells:
            column = f"{_LABEL}{inner[0]}"
        if field == "properties" and inner:
            column = f"{_PROPERTY}{inner[0]}"
        return format_path((column,))


class _Row:
    """One row, and the faults found in reading it."""

    def __init__(self, header: _Header, line: int, cells: list[str]) -> None:
        self.line = line
        self.errors: list[FieldError] = []
        stripped = [cell.strip() for cell in cells]
        named_cells = zip(header.cells, stripped, strict=False)
        self.cells = {
            column: cell
            for column, cell in named_cells
            if cell and column in header.readable
        }
        named = len(header.cells)
        beyond = [
            at
            for at, cell in enumerate(stripped)
            if cell and (at >= named or not header.cells[at])
        ]
        if beyond:
            message = (
                f"has something in cell {beyond[0] + 1}, where no column has a name"
            )
            self.refuse(
                "", "too-many", message, f"as many cells as the {named} columns"
            )

    def plain(self) -> dict[str, Any]:
        labels = dict(self._under(_LABEL))
        for part in self._parts("labels"):
            key, sign, value = (piece.strip() for piece in part.partition("="))
            if not sign:
                self.refuse(
                    "labels",
                    "bad-format",
                    f"{quote_value(part)} is not key=value",
                    _PAIR,
                )
            elif key in labels:
                self.refuse(
                    "labels",
                    "duplicate",
                    f"the label {quote_value(key)} appears twice in the row",
                    "once",
                )
            else:
                labels[key] = value
        return {
            "name": self.cells.get("name"),
            "labels": labels,
            "taints": [
                taint for part in self._parts("taints") for taint in self._taint(part)
            ],
            "properties": dict(self._under(_PROPERTY)),
        }

    def refuse(self, column: str, code: str, message: str, allowed: str) -> None:
        path = format_path((column,)) if column else ""
        self.errors.append(FieldError(path, code, message, allowed, self.line))

    def _under(self, prefix: str) -> Iterator[tuple[str, str]]:
        for column, cell in self.cells.items():
            if column.startswith(prefix):
                yield column.removeprefix(prefix), cell

    def _taint(self, part: str) -> Iterator[dict[str, str]]:
        subject, colon, effect = (piece.strip() for piece in part.rpartition(":"))
        if not colon:
            self.refuse(
                "taints", "bad-format", f"{quote_value(part)} has no effect", _TAINT
            )
            return
        key, _, value = (piece.strip() for piece in subject.partition("="))
        yield {"key": key, "value": value, "effect": effect}

    def _parts(self, column: str) -> list[str]:
        return [
            part.strip()
            for part in self.cells.get(column, "").split(";")
            if part.strip()
        ]


_JSON_LINES = (".jsonl", ".ndjson")
_OBJECT = ("{", "[")


@dataclass(frozen=True, slots=True)
class MemberRead:
    """One cluster of a file: its document, the parsed value, and its first line.

    For a table or a plain object the document is generated, with an identity for the agent.
    """

    document: dict[str, Any]
    member: MemberClusterManifest
    line: int | None


def read_members(source: bytes, *, name: str) -> list[MemberRead]:
    """Read the clusters of a file: MemberCluster documents, plain objects, or a table.

    The format is detected from the content, otherwise from the file name. Raises InvalidManifest with
    all errors and their lines.
    """
    entries = _entries(decoded(source, LARGEST_UPLOAD), name.lower())
    if not entries:
        allowed = "MemberCluster objects, plain {name, labels, …}, or a table with a column `name`"
        raise InvalidManifest.of("", "required", "holds no member cluster", allowed)
    return _Reading(entries).members()


def _entries(text: str, name: str) -> list[ImportEntry]:
    """Split a text into clusters. Raise InvalidManifest where that cannot be done."""
    if _has_objects_by_line(text, name):
        return list(_json_lines(text))
    is_object = text.lstrip()[:1] in _OBJECT
    if not is_object and (
        looks_like_table(text) or (name.endswith(".csv") and not _looks_like_yaml(text))
    ):
        return read_table(text)
    items = (
        one
        for item in items_in(text)
        for one in (entries_of(item) if isinstance(item.data, list) else [item])
    )
    return [ImportEntry(item.data, item=item) for item in items]


def _looks_like_yaml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith(
        ("---", "- ", "apiVersion:", "kind:", "items:", "metadata:")
    )


def _has_objects_by_line(text: str, name: str) -> bool:
    """Return whether a text has JSON lines: the first line is a complete object, and another one follows."""
    first, _, rest = text.strip().partition("\n")
    if not first.startswith("{"):
        return False
    if name.endswith(_JSON_LINES):
        return True
    with suppress(ValueError, RecursionError):
        return rest.lstrip().startswith("{") and isinstance(json.loads(first), dict)
    return False


def _json_lines(text: str) -> Iterator[ImportEntry]:
    lines = [
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if len(lines) > MOST_DOCUMENTS:
        raise InvalidManifest.of(
            "", "too-many", f"has more than {MOST_DOCUMENTS} lines"
        )
    for number, line in lines:
        try:
            yield ImportEntry(load_json(line), number)
        except InvalidManifest as invalid:
            errors = (replace(error, line=number) for error in invalid.errors)
            yield ImportEntry(None, number, errors=tuple(errors))


class _Reading:
    """Parses the entries and collects the errors of all."""

    def __init__(self, entries: list[ImportEntry]) -> None:
        self.entries = entries
        self.read: list[tuple[ImportEntry, dict[str, Any], MemberClusterManifest]] = []
        self.errors: list[tuple[ImportEntry, FieldError]] = []
        self.names: set[str] = set()
        for entry in entries:
            self._take(entry)

    def members(self) -> list[MemberRead]:
        """Return all clusters with their lines, or raise InvalidManifest."""
        if self.errors:
            lines = _lines((entry, error.path) for entry, error in self.errors)
            placed = zip(self.errors, lines, strict=True)
            raise InvalidManifest(
                error if error.line else replace(error, line=line)
                for (_, error), line in placed
            )
        lines = _lines((entry, "") for entry, _, _ in self.read)
        return [
            MemberRead(document, member, line)
            for (_, document, member), line in zip(self.read, lines, strict=True)
        ]

    def _take(self, entry: ImportEntry) -> None:
        self._refuse(entry, entry.errors)
        if entry.data is None and entry.errors:
            return
        document = entry.data
        if is_plain(entry.data):
            self._refuse(entry, unknown_fields(entry.data))
            document = member_document(entry.data)
        try:
            member = parse_member(document)
        except InvalidManifest as invalid:
            errors = invalid.errors
            if is_plain(entry.data):
                pairs = (
                    (error, plain_place(split_path(error.path))) for error in errors
                )
                errors = tuple(
                    replace(one, path=entry.place_of(keys) if keys else "")
                    for one, keys in pairs
                )
            self._refuse(entry, errors)
        else:
            self.read.append((entry, document, member))
        name = written_name(entry.data)
        if name and name in self.names:
            path = "name" if is_plain(entry.data) else "metadata.name"
            message = f"{name} is the name of another cluster above"
            self._refuse(
                entry, [FieldError(path, "duplicate", message, "each name once")]
            )
        if name:
            self.names.add(name)

    def _refuse(self, entry: ImportEntry, errors: Iterable[FieldError]) -> None:
        called = (written_name(entry.data) or "")[:63]
        prefix = f"{called}: " if called and len(self.entries) > 1 else ""
        self.errors += (
            (entry, replace(error, message=prefix + error.message)) for error in errors
        )


def _lines(paths: Iterable[tuple[ImportEntry, str]]) -> list[int | None]:
    pairs = list(paths)
    lines = iter(
        lines_of(
            [(entry.item, path) for entry, path in pairs if entry.item is not None]
        )
    )
    return [entry.line if entry.item is None else next(lines) for entry, _ in pairs]
