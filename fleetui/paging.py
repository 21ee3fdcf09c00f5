"""Keyset pages: the database goes on where the last page ended, however far that is.

A cursor names the last row of a page by what it was ordered by; rows that come or go in between move nothing.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

Row = TypeVar("Row", bound=Model)


class BadCursorError(ValueError):
    """A cursor was not written by this console, or for another order."""

    def __init__(self) -> None:
        super().__init__("the cursor cannot be read; begin again at the first page")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """The rows of one page, and the cursor of the next; None at the end."""

    rows: list[Row]
    after: str | None


def page_of(
    rows: QuerySet[Row], *, order: str, size: int, after: str | None = None, unique: str = "name"
) -> Page[Row]:
    """Give one page of the rows; `order` is a column that is never null, with a minus for descending.

    Equal rows come by `unique`. Raises BadCursorError.
    """
    descending, column = order.startswith("-"), order.removeprefix("-")
    sign = "-" if descending else ""
    columns = [column] if column == unique else [column, unique]
    values = None if after is None else _read(after, len(columns))
    try:
        if values is not None:
            rows = rows.filter(_beyond(columns, values, descending=descending))
        found = list(rows.order_by(*(f"{sign}{one}" for one in columns))[: size + 1])
    except (ValidationError, ValueError, TypeError, OverflowError) as error:
        raise BadCursorError from error
    more = len(found) > size
    return Page(found[:size], _written(found[size - 1], columns) if more else None)


def _beyond(columns: list[str], values: list[Any], *, descending: bool) -> Q:
    compare = "lt" if descending else "gt"
    first = Q(**{f"{columns[0]}__{compare}": values[0]})
    if len(columns) == 1:
        return first
    return first | Q(**{columns[0]: values[0], f"{columns[1]}__{compare}": values[1]})


def _written(row: Model, columns: list[str]) -> str:
    text = json.dumps([getattr(row, one) for one in columns], default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(cursor: str, length: int) -> list[Any]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursorError from error
    if not isinstance(values, list) or len(values) != length or not all(map(_is_plain, values)):
        raise BadCursorError
    return values


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int) and "\0" not in str(value) and len(str(value)) <= 400
