"""Queries that pages ask again and again: written once, since writing one takes longer than answering it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.db import connection
from django.db.models import QuerySet

GIVEN = "\0given"
"""What stands in such a query in the place of a value that it is asked with."""


class Prepared:
    """One row by values; `write` gives the query, with `GIVEN` where each of them belongs, in their order."""

    def __init__(self, write: Callable[[], QuerySet[Any, Any]]) -> None:
        self._write = write

    def first(self, *given: str) -> tuple[Any, ...] | None:
        """Ask; None where there is no such row."""
        sql, parameters = self._written
        values = iter(given)
        with connection.cursor() as cursor:
            cursor.execute(sql, [next(values) if one == GIVEN else one for one in parameters])
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    @cached_property
    def _written(self) -> tuple[str, tuple[Any, ...]]:
        sql, parameters = self._write()[:1].query.sql_with_params()
        return sql, tuple(parameters)
