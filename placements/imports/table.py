"""Tables of clusters, a row each, as spreadsheets write them (CSV).

    name,labels,taints,label:region,property:example.com/cost
    bravelion,env=prod;system=critical,gpu=true:NoSchedule,east,0.25

Cells are taken without the blanks around them; an empty one says nothing. A label without a value is written
in the column `labels`, as `key=`.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from placements.imports.entries import Entry
from placements.manifests import MOST_DOCUMENTS
from placements.scheduling.door import names
from placements.scheduling.door.parsing import shown
from placements.scheduling.faults import Fault, Faults, Keys, format_path

COLUMNS = "name, labels, taints, label:<key>, property:<name>; divided by commas"
_LABEL, _PROPERTY = "label:", "property:"
_TAINT = "key=value:NoSchedule, divided by semicolons"
_PAIR = "key=value, divided by semicolons"


def looks_like_table(text: str) -> bool:
    """Tell whether the first line that says something is a header with a column `name`."""
    first = next((line for line in io.StringIO(text, newline="") if line.strip()), "")
    with suppress(csv.Error):
        return any(cell.strip() == "name" for row in csv.reader([first]) for cell in row)
    return False


def read_table(text: str) -> list[Entry]:
    """Read the rows of a table. Raises Faults when there is no column of names.

    Its other faults, and where a table breaks off, are entries without data: the rows tell theirs too.
    """
    rows = _rows(text)
    line, cells = next(rows, (1, []))
    header = _Header(line, tuple(cell.strip() for cell in cells))
    if "name" not in header.cells:
        raise Faults([Fault("", "required", "has no column `name`", COLUMNS, line), *header.faults])
    entries = [Entry(None, line, faults=header.faults)] if header.faults else []
    try:
        entries += (header.entry(at, cells) for at, cells in rows)
    except Faults as broken:
        entries.append(Entry(None, faults=broken.faults))
    return entries


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Give the rows that say something, each with the line on which it begins. Raises Faults."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    for count in range(MOST_DOCUMENTS + 2):
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise Faults([Fault("", "bad-syntax", f"is not a table: {error}", "", begins)]) from error
        if cells is None:
            return
        if count > MOST_DOCUMENTS:
            break
        if any(cell.strip() for cell in cells):
            yield begins, cells
        begins = reader.line_num + 1
    raise Faults([Fault("", "too-many", f"has more than {MOST_DOCUMENTS} rows", "", begins)])


@dataclass(frozen=True)
class _Header:
    """The columns of a table."""

    line: int
    cells: tuple[str, ...]

    @cached_property
    def faults(self) -> tuple[Fault, ...]:
        """List what is wrong with the columns; one without a name may be empty, so its rows tell."""
        counts = Counter(filter(None, self.cells))
        twice = (
            Fault(format_path((one,)), "duplicate", "is a column twice", "each once", self.line)
            for one, count in counts.items()
            if count > 1
        )
        return (*filter(None, (self._fault(one) for one in counts)), *twice)

    @cached_property
    def readable(self) -> frozenset[str]:
        """Give the columns that say something about a cluster."""
        return frozenset(one for one in self.cells if one and not self._fault(one))

    def _fault(self, column: str) -> Fault | None:
        problem = None
        if column.startswith(_LABEL):
            problem = names.label_key_problem(column.removeprefix(_LABEL))
        elif column.startswith(_PROPERTY):
            problem = names.property_name_problem(column.removeprefix(_PROPERTY))
        elif column not in ("name", "labels", "taints"):
            message = f"{shown(column)} is not a column of clusters"
            return Fault(format_path((column,)), "unknown-field", message, COLUMNS, self.line)
        if problem is None:
            return None
        message = f"{shown(column)} {problem.words}"
        return Fault(format_path((column,)), problem.code, message, COLUMNS, self.line)

    def entry(self, line: int, cells: list[str]) -> Entry:
        """Read one row into the plain form of a cluster."""
        row = _Row(self, line, cells)
        return Entry(row.plain(), line, faults=tuple(row.faults), place_of=self.column_of)

    def column_of(self, keys: Keys) -> str:
        """Give the path of the column that says what the plain form has at some keys."""
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
        self.faults: list[Fault] = []
        stripped = [cell.strip() for cell in cells]
        named_cells = zip(header.cells, stripped, strict=False)
        self.cells = {column: cell for column, cell in named_cells if cell and column in header.readable}
        named = len(header.cells)
        beyond = [at for at, cell in enumerate(stripped) if cell and (at >= named or not header.cells[at])]
        if beyond:
            message = f"has something in cell {beyond[0] + 1}, where no column has a name"
            self.refuse("", "too-many", message, f"as many cells as the {named} columns")

    def plain(self) -> dict[str, Any]:
        """Give the row in the plain form."""
        return {
            "name": self.cells.get("name"),
            "labels": self._labels(),
            "taints": [taint for part in self._parts("taints") for taint in self._taint(part)],
            "properties": dict(self._under(_PROPERTY)),
        }

    def refuse(self, column: str, code: str, message: str, allowed: str) -> None:
        """Note a fault of this row."""
        path = format_path((column,)) if column else ""
        self.faults.append(Fault(path, code, message, allowed, self.line))

    def _under(self, prefix: str) -> Iterator[tuple[str, str]]:
        for column, cell in self.cells.items():
            if column.startswith(prefix):
                yield column.removeprefix(prefix), cell

    def _labels(self) -> dict[str, str]:
        labels = dict(self._under(_LABEL))
        for part in self._parts("labels"):
            key, sign, value = (piece.strip() for piece in part.partition("="))
            if not sign:
                self.refuse("labels", "bad-format", f"{shown(part)} is not key=value", _PAIR)
            elif key in labels:
                self.refuse("labels", "duplicate", f"the label {shown(key)} stands twice in the row", "once")
            else:
                labels[key] = value
        return labels

    def _taint(self, part: str) -> Iterator[dict[str, str]]:
        subject, colon, effect = (piece.strip() for piece in part.rpartition(":"))
        if not colon:
            self.refuse("taints", "bad-format", f"{shown(part)} has no effect", _TAINT)
            return
        key, _, value = (piece.strip() for piece in subject.partition("="))
        yield {"key": key, "value": value, "effect": effect}

    def _parts(self, column: str) -> list[str]:
        return [part.strip() for part in self.cells.get(column, "").split(";") if part.strip()]
