"""What polling pages are made of: 204 when nothing changed, and prepared queries of one row."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from django.db import connection
from django.db.models import CharField, Count, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Cast, Coalesce, Concat
from django.http import HttpRequest, HttpResponse

from fleetui.htmx import wants_fragment
from fleetui.hub_scope import current_hub_id

ReadVersion: TypeAlias = Callable[[], str]


class NotModified(HttpResponse):
    """Status 204: `read_version` still returns the version of the page."""

    status_code = 204

    def __init__(self, read_version: ReadVersion) -> None:
        super().__init__()
        self.hub, self.read_version = current_hub_id(), read_version


def not_modified(request: HttpRequest, version: str, read_version: ReadVersion) -> NotModified | None:
    if wants_fragment(request) and request.GET.get("v") == version:
        return NotModified(read_version)
    return None


PARAMETER = "\0given"
"""The placeholder of a parameter in a query of one row."""
ANYBODY = 2_000_000_011
"""The placeholder of the primary key of a user."""
ANY_TIME = datetime(1999, 1, 1, 1, 1, 1, tzinfo=UTC)
"""The placeholder of the time of the request."""


def number_of(rows: QuerySet[Any, Any]) -> Coalesce:
    """Return the expression of how many rows there are, for a column of another query."""
    one_group = rows.order_by().annotate(one=Value(1)).values("one")
    return Coalesce(Subquery(one_group.annotate(number=Count("pk")).values("number")), 0)


def sums_of(rows: QuerySet[Any, Any], *columns: str) -> QuerySet[Any, Any]:
    """Return the query of how many rows there are and of the sum of their columns, for another query."""
    total = sum((Sum(column, default=0) for column in columns[1:]), Sum(columns[0], default=0))
    parts = Concat(Cast(Count("pk"), CharField()), Value("."), Cast(total, CharField()))
    return rows.order_by().annotate(one=Value(1)).values("one").annotate(version=parts).values("version")


class PreparedQuery:
    """A query of the hub in scope, compiled once; `write` returns it with placeholders for what differs."""

    def __init__(self, write: Callable[[], QuerySet[Any, Any]]) -> None:
        self._write = write
        self._written: dict[int, tuple[str, Sequence[Any]]] = {}

    def first(self, *arguments: str) -> tuple[Any, ...] | None:
        """Return the first row, None without one; each `PARAMETER` is the next of these values."""
        values = iter(arguments)
        sql, parameters = self._compiled(most=1)
        with connection.cursor() as cursor:
            cursor.execute(sql, [next(values) if one == PARAMETER else one for one in parameters])
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def rows(self, values: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
        """Return the rows, as the database writes their values; `values` are those of the placeholders."""
        sql, parameters = self._compiled(most=None)
        with connection.cursor() as cursor:
            # PostgreSQL takes the values of an `__in` as a list, which is no key.
            arguments = [one if isinstance(one, list) else values.get(one, one) for one in parameters]
            cursor.execute(sql, arguments)
            return list(cursor.fetchall())

    def _compiled(self, most: int | None) -> tuple[str, Sequence[Any]]:
        hub = current_hub_id()
        if hub not in self._written:
            self._written[hub] = self._write()[:most].query.sql_with_params()
        return self._written[hub]
