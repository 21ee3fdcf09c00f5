"""Keyset pagination: the time for a page does not depend on its position.

A cursor has the order value and key of the last row, so that inserted and deleted rows do not shift pages.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from fleetui.errors import FleetError

Row = TypeVar("Row", bound=Model)


class BadCursorError(FleetError, ValueError):
    """A cursor was not written by this console, or for another order."""

    status = HTTPStatus.BAD_REQUEST
    problem_type = "bad-cursor"

    def __init__(self) -> None:
        super().__init__("Invalid cursor; start at the first page")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """The rows of one page, and the cursor of the next; None at the end.

    `before` is the cursor of the previous page, where that is not the first one and its position is known.
    """

    rows: list[Row]
    after: str | None
    before: str | None = None


def page_of(
    rows: QuerySet[Row],
    *,
    order: str,
    size: int,
    after: str | None = None,
    unique: str = "name",
    start: int = 0,
) -> Page[Row]:
    """Return one page of the rows; `order` is a column that is never null, with a minus for descending.

    Equal rows come by `unique`; `start` rows come before the page. Raises BadCursorError.
    """
    descending, column = order.startswith("-"), order.removeprefix("-")
    sign = "-" if descending else ""
    columns = list(dict.fromkeys((column, unique)))
    values = None if after is None else _read(after, len(columns))
    sorted_rows = rows.order_by(*(f"{sign}{one}" for one in columns))
    previous = (
        list(sorted_rows[start - size - 1 : start - size])
        if values and start > size
        else []
    )
    try:
        if values is not None:
            compare = "lt" if descending else "gt"
            beyond = Q(**{f"{columns[0]}__{compare}": values[0]})
            if len(columns) > 1:
                beyond |= Q(
                    **{columns[0]: values[0], f"{columns[1]}__{compare}": values[1]}
                )
            sorted_rows = sorted_rows.filter(beyond)
        page_rows = list(sorted_rows[: size + 1])
    except (ValidationError, ValueError, TypeError, OverflowError) as error:
        raise BadCursorError from error
    after = _written(page_rows[size - 1 : -1], columns)
    return Page(page_rows[:size], after, _written(previous, columns))


def _written(rows: Sequence[Model], columns: list[str]) -> str | None:
    """Return the cursor of a row; None without one."""
    if not rows:
        return None
    values = json.dumps([getattr(rows[0], column) for column in columns], default=str)
    return base64.urlsafe_b64encode(values.encode()).decode().rstrip("=")


def _read(cursor: str, length: int) -> list[Any]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursorError from error
    if not isinstance(values, list) or len(values) != length:
        raise BadCursorError
    for value in values:
        if (
            not isinstance(value, str | int)
            or "\0" in str(value)
            or len(str(value)) > 400
        ):
            raise BadCursorError
    return values
