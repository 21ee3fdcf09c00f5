"""What polling pages are made of: 204 when nothing changed, and queries compiled once."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from django.db import connection
from django.db.models import CharField, Count, QuerySet, Subquery, Sum, Value
from django.db.models.expressions import RawSQL
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
"""The placeholder of a text in a prepared query."""
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
    """A query of the hub in scope, compiled once; `write` returns it with placeholders for what differs.

    `shape` is what `write` takes, such as the lengths of lists.
    """

    def __init__(self, write: Callable[..., QuerySet[Any, Any]]) -> None:
        @lru_cache(maxsize=200)
        def compiled(_hub: int, *shape: Hashable) -> tuple[str, Sequence[Any]]:
            return write(*shape).query.sql_with_params()

        self._compiled = compiled

    def rows(self, values: Mapping[Any, Any], *shape: Hashable) -> list[tuple[Any, ...]]:
        """Return the rows, as the database writes their values; `values` are those of the placeholders."""

        def value_of(one: Any) -> Any:
            # PostgreSQL takes the values of an `__in` as a list, which is no key.
            return list(map(value_of, one)) if isinstance(one, list) else values.get(one, one)

        sql, parameters = self._compiled(current_hub_id(), *shape)
        with connection.cursor() as cursor:
            cursor.execute(sql, list(map(value_of, parameters)))
            return list(cursor.fetchall())


def prepared_columns(write: Callable[[], Mapping[str, Any]]) -> Callable[[QuerySet[Any]], QuerySet[Any]]:
    """Return the function that adds columns to rows; `write` returns them, once for each hub and model.

    They have the table by its own name, so the rows are no subquery of another query.
    """

    @lru_cache(maxsize=200)
    def compiled(_hub: int, model: Any) -> dict[str, RawSQL]:
        query = model._default_manager.annotate(**write()).query
        compiler = query.get_compiler(connection=connection)
        parts = {name: (*compiler.compile(one), one.output_field) for name, one in query.annotations.items()}
        return {name: RawSQL(*part) for name, part in parts.items()}  # noqa: S611 -- SQL that Django wrote

    def add(rows: QuerySet[Any]) -> QuerySet[Any]:
        model: Any = rows.model
        return rows.annotate(**compiled(current_hub_id(), model))

    return add
