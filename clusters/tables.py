"""Clusters in a table: a row for each cluster, its columns divided by commas or semicolons.

A label without a value is `key=` in the column `labels`:

    name,labels,taints,label:region,property:example.com/cost
    bravelion,env=prod;system=critical,gpu=true:NoSchedule,east,0.25
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    ManifestWarning,
    format_path,
)
from fleetui.apimachinery.model import quote_value
from fleetui.apimachinery.yaml import MOST_DOCUMENTS, Document


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """One cluster of a source, with the errors found while reading.

    The line is known, or looked up in `item`. `place_of` maps the keys of the plain form, or of a
    MemberCluster, to the path in the source. `context` is one of the kubeconfig `item`.
    """

    data: Any
    line: int | None = None
    item: Document | None = None
    errors: tuple[FieldError, ...] = ()
    notes: tuple[ManifestWarning, ...] = ()
    place_of: Callable[[Keys], str] = format_path
    context: str = ""


def unknown_note(path: str, what: str) -> ManifestWarning:
    return ManifestWarning("unknown-field", path, f"Not used: not a {what}")


COLUMNS = "name, labels, taints, label:<key>, property:<name>; divided by commas or semicolons"
_DIVIDERS = (",", ";")
_COLUMNS = ("name", "labels", "taints")
_LABEL, _PROPERTY = "label:", "property:"
_TAINT = "key=value:NoSchedule, divided by semicolons or commas"
_PAIR = "key=value, divided by semicolons or commas"


def looks_like_table(text: str) -> bool:
    """Return whether the first non-empty line is a header with a column `name`."""
    return bool(_divider_of(text))


def _divider_of(text: str) -> str:
    """Return what divides the columns of a table; empty where there is no column `name`."""
    first = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    for divider in _DIVIDERS:
        with suppress(csv.Error):
            cells = next(csv.reader([first], delimiter=divider), [])
            if "name" in map(str.strip, cells):
                return divider
    return ""


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
    entries = []
    if header.errors or header.notes:
        first = ImportEntry(None, line, errors=header.errors, notes=header.notes)
        entries.append(first)
    try:
        entries += (header.entry(at, cells) for at, cells in rows)
    except InvalidManifest as broken:
        entries.append(ImportEntry(None, errors=broken.errors))
    return entries


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows, each with its first line. Raises InvalidManifest."""
    divider = _divider_of(text) or _DIVIDERS[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=divider, strict=True)
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

    @property
    def notes(self) -> tuple[ManifestWarning, ...]:
        unknown = dict.fromkeys(one for one in self.cells if one and not _is_known(one))
        paths = (format_path((one,)) for one in unknown)
        return tuple(unknown_note(path, "column of clusters") for path in paths)

    @cached_property
    def readable(self) -> frozenset[str]:
        known = filter(_is_known, self.cells)
        return frozenset(one for one in known if not self._fault(one))

    def _fault(self, column: str) -> FieldError | None:
        problem = None
        if column.startswith(_LABEL):
            problem = fields.label_key_problem(column.removeprefix(_LABEL))
        elif column.startswith(_PROPERTY):
            problem = fields.property_name_problem(column.removeprefix(_PROPERTY))
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


def _is_known(column: str) -> bool:
    return column in _COLUMNS or column.startswith((_LABEL, _PROPERTY))


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
            for part in re.split("[;,]", self.cells.get(column, ""))
            if part.strip()
        ]
