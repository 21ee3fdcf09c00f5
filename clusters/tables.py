"""Clusters in a table: a row for each cluster, its columns divided by commas or semicolons.

A label without a value is `key=` in the column `labels`:

    name,labels,taints,label:region,property:example.com/cost
    bravelion,env=prod;system=critical,gpu=true:NoSchedule,east,0.25
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
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
    columns = tuple(cell.strip() for cell in cells)
    counts = Counter(filter(None, columns))
    faults = {count: error for count in counts for error in _column_errors(count)}
    twice = (
        FieldError(format_path((one,)), "duplicate", "is a column twice", "each once")
        for one, count in counts.items()
        if count > 1
    )
    header = ImportEntry(
        None,
        line,
        errors=(*faults.values(), *twice),
        notes=tuple(
            unknown_note(format_path((count,)), "column of clusters")
            for count in counts
            if count not in _COLUMNS and not count.startswith((_LABEL, _PROPERTY))
        ),
    )
    if "name" not in columns:
        missing = FieldError("", "required", "has no column `name`", COLUMNS)
        errors = (replace(error, line=line) for error in (missing, *header.errors))
        raise InvalidManifest(errors)
    entries = []
    if header.errors or header.notes:
        entries.append(header)
    try:
        entries += (_entry(columns, faults, at, cells) for at, cells in rows)
    except InvalidManifest as broken:
        entries.append(ImportEntry(None, errors=broken.errors))
    return entries


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows, each with its first line. Raises InvalidManifest."""
    divider = _divider_of(text) or _DIVIDERS[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=divider, strict=True)
    line = 1
    try:
        for count, cells in enumerate(reader):
            if count > MOST_DOCUMENTS:
                raise InvalidManifest.of(
                    "", "too-many", f"has more than {MOST_DOCUMENTS} rows", "", line
                )
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InvalidManifest.of(
            "", "bad-syntax", f"is not a table: {error}", "", line
        ) from error


def _column_errors(column: str) -> Iterator[FieldError]:
    """Yield the error of a column; one without a name may be empty, so its rows report it."""
    problem = None
    if column.startswith(_LABEL):
        problem = fields.label_key_problem(column.removeprefix(_LABEL))
    elif column.startswith(_PROPERTY):
        problem = fields.property_name_problem(column.removeprefix(_PROPERTY))
    if problem:
        message = f"{quote_value(column)} {problem.words}"
        yield FieldError(format_path((column,)), problem.code, message, COLUMNS)


def _entry(
    columns: tuple[str, ...], faults: Container[str], line: int, cells: list[str]
) -> ImportEntry:
    """Return the cluster of a row; cells in columns with a fault are not read."""
    texts = [cell.strip() for cell in cells]
    row = {
        column: text
        for column, text in zip(columns, texts, strict=False)
        if text and column not in faults
    }
    errors = []
    named = len(columns)
    beyond = [
        at for at, text in enumerate(texts) if text and (at >= named or not columns[at])
    ]
    if beyond:
        message = f"has something in cell {beyond[0] + 1}, where no column has a name"
        errors.append(
            FieldError("", "too-many", message, f"as many cells as the {named} columns")
        )
    labels = _values_under(_LABEL, row)
    for part in _parts(row, "labels"):
        key, sign, value = map(str.strip, part.partition("="))
        if not sign:
            message = f"{quote_value(part)} is not key=value"
            errors.append(
                FieldError(
                    "labels",
                    "bad-format",
                    message,
                    "key=value, divided by semicolons or commas",
                )
            )
        elif key in labels:
            message = f"the label {quote_value(key)} appears twice in the row"
            errors.append(FieldError("labels", "duplicate", message, "once"))
        else:
            labels[key] = value
    taints = []
    for part in _parts(row, "taints"):
        subject, colon, effect = map(str.strip, part.rpartition(":"))
        key, _, value = map(str.strip, subject.partition("="))
        if colon:
            taints.append({"key": key, "value": value, "effect": effect})
        else:
            message = f"{quote_value(part)} has no effect"
            errors.append(
                FieldError(
                    "taints",
                    "bad-format",
                    message,
                    "key=value:NoSchedule, divided by semicolons or commas",
                )
            )
    plain = {
        "name": row.get("name"),
        "labels": labels,
        "taints": taints,
        "properties": _values_under(_PROPERTY, row),
    }
    place_of = partial(_column_of, columns)
    return ImportEntry(plain, line, errors=tuple(errors), place_of=place_of)


def _values_under(prefix: str, row: Mapping[str, str]) -> dict[str, str]:
    found = {one: text for one, text in row.items() if one.startswith(prefix)}
    return {one.removeprefix(prefix): text for one, text in found.items()}


def _parts(row: Mapping[str, str], column: str) -> Iterator[str]:
    return filter(None, map(str.strip, re.split("[;,]", row.get(column, ""))))


def _column_of(columns: tuple[str, ...], keys: Keys) -> str:
    """Return the path of the column for some keys of the plain form."""
    column = str(keys[0])
    prefix = {"labels": _LABEL, "properties": _PROPERTY}.get(column)
    if prefix and len(keys) > 1 and f"{prefix}{keys[1]}" in columns:
        column = f"{prefix}{keys[1]}"
    return format_path((column,))
