"""Large queries, built and compiled once: each time, that would take longer than the database needs."""

from collections.abc import Callable, Hashable
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import QuerySet

from fleetui.hub_scope import current_hub_id, in_hub

# Nothing else has these values. The first one is in place of the hub in scope.
_HUB = -1_000_000
_MARKS: dict[type, Callable[[int], Any]] = {
    int: lambda place: _HUB - place,
    str: "value-{}-of-a-prepared-query".format,
    datetime: lambda place: datetime.min.replace(tzinfo=UTC) + timedelta(days=place),
}


class PreparedQuery:
    """A query of which only values differ from one time to the next, and the hub in scope.

    `build` returns it for a shape and for values by name. It is called once for each shape, with a mark in
    place of each value: whatever else it reads must follow from the shape, and the values may be compared in
    the database only.
    """

    def __init__(self, build: Callable[..., QuerySet[Any, Any]]) -> None:
        self._build = build
        self._prepared: dict[Hashable, Any] = {}

    def rows(self, *shape: Hashable, **values: Any) -> list[Any]:
        """Return what the query finds for these values. Raise ValueError if it does not use one of them."""
        if shape not in self._prepared:
            self._prepared[shape] = self._prepare(shape, values)
        template, compiler, sql, sources = self._prepared[shape]
        # A compiler belongs to the connection of a thread.
        compiler = copy(compiler)
        compiler.connection = connections[template.db]
        actual = _adapted({**values, "hub": current_hub_id()}, compiler.connection)
        compiler.as_sql = lambda: (sql, [actual.get(*source) for source in sources])
        queryset = template.all()
        queryset.query.get_compiler = lambda *_, **__: compiler
        return list(queryset)

    def _prepare(self, shape: tuple[Hashable, ...], values: dict[str, Any]) -> Any:
        """Return the query, its compiler and its statement; a parameter is a name, or None and a constant."""
        marks = {
            name: _MARKS[type(value)](place)
            for place, (name, value) in enumerate(values.items(), start=1)
        }
        with in_hub(_HUB):
            queryset = self._build(*shape, **marks)
        compiler = queryset.query.get_compiler(using=queryset.db)
        sql, parameters = compiler.as_sql()
        names = _adapted({**marks, "hub": _HUB}, compiler.connection).items()
        sources = [
            (next((name for name, mark in names if mark == parameter), None), parameter)
            for parameter in parameters
        ]
        if unused := marks.keys() - {name for name, _ in sources}:
            raise ValueError(f"the query does not use {', '.join(sorted(unused))}")
        return queryset, compiler, sql, sources


def _adapted(values: dict[str, Any], connection: Any) -> dict[str | None, Any]:
    """Return the values as the parameters of a statement have them."""
    return {
        name: connection.ops.adapt_datetimefield_value(value)
        if isinstance(value, datetime)
        else value
        for name, value in values.items()
    }
