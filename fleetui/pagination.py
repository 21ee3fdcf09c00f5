"""Keyset pagination: the time for a page does not depend on its position.

A cursor has the order value and key of the last row, so that inserted and deleted rows do not shift pages.
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
        super().__init__("Invalid cursor; start at the first page")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """The rows of one page, and the cursor of the next; None at the end."""

    rows: list[Row]
    after: str | None


def page_of(
    rows: QuerySet[Row], *, order: str, size: int, after: str | None = None, unique: str = "name"
) -> Page[Row]:
    """Return one page of the rows; `order` is a column that is never null, with a minus for descending.

    Equal rows come by `unique`. Raises BadCursorError.
    """
    descending, column = order.startswith("-"), order.removeprefix("-")
    sign = "-" if descending else ""
    columns = [column] if column == unique else [column, unique]
    values = None if after is None else _read(after, len(columns))
    try:
        if values is not None:
            compare = "lt" if descending else "gt"
            beyond = Q(**{f"{columns[0]}__{compare}": values[0]})
            if len(columns) > 1:
                beyond |= Q(**{columns[0]: values[0], f"{columns[1]}__{compare}": values[1]})
            rows = rows.filter(beyond)
        found = list(rows.order_by(*(f"{sign}{one}" for one in columns))[: size + 1])
    except (ValidationError, ValueError, TypeError, OverflowError) as error:
        raise BadCursorError from error
    if len(found) <= size:
        return Page(found, None)
    last = json.dumps([getattr(found[size - 1], one) for one in columns], default=str)
    return Page(found[:size], base64.urlsafe_b64encode(last.encode()).decode().rstrip("="))


def _read(cursor: str, length: int) -> list[Any]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursorError from error
    if not isinstance(values, list) or len(values) != length:
        raise BadCursorError
    for value in values:
        if not isinstance(value, str | int) or "\0" in str(value) or len(str(value)) > 400:
            raise BadCursorError
    return values
