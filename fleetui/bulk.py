"""Statements about many rows: filters, batches, and claims of due rows with a lease."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from itertools import chain, islice
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, Expression, F, Field, Model, QuerySet, Subquery
from django.db.models import Value as Constant
from django.db.models.expressions import Combinable, OrderBy
from django.db.models.functions import Coalesce
from django.db.models.sql.compiler import SQLCompiler

from fleetui.changes import unnoticed

BATCH_SIZE = 500

Value = TypeVar("Value")
Row = TypeVar("Row", bound=Model)


def batched(values: Iterable[Value], size: int = BATCH_SIZE) -> Iterator[list[Value]]:
    """Yield the values in lists of at most `size`, so that a statement keeps few parameters."""
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch


def first_or_raise(rows: QuerySet[Row], error: Exception) -> Row:
    row = rows.first()
    if row is None:
        raise error
    return row


def filter_by(rows: QuerySet[Row], **lookups: Any) -> QuerySet[Row]:
    """Return the rows that match the lookups; one without a value matches every row."""
    return rows.filter(**{name: value for name, value in lookups.items() if value})


def claim_batch(
    due: QuerySet[Row], *order: str | OrderBy, size: int, **lease: Any
) -> list[int]:
    """Write a lease into the first `size` rows of `due`; return the primary keys of the rows claimed.

    A conditional update: a row that another worker claims meanwhile is no longer in `due` and is left to it.
    Two workers with the same `lease` may both get such a row, so a lease contains a token where that matters.
    Values that the database computes from the row, such as `F("calls") + 1`, do not identify it.
    """
    ordered = due.order_by(*order)
    if not connection.features.has_select_for_update_skip_locked:
        return _claim(due, ordered, size, lease)
    with transaction.atomic(savepoint=False):
        # Never wait for a row while other rows are locked here: that would be half of a deadlock.
        return _claim(due, ordered.select_for_update(skip_locked=True), size, lease)


def _claim(
    due: QuerySet[Row], ordered: QuerySet[Row], size: int, lease: Mapping[str, Any]
) -> list[int]:
    ids = list(ordered.values_list("pk", flat=True)[:size])
    with unnoticed():
        claimed = due.filter(pk__in=ids).update(**lease) if ids else 0
    if claimed == len(ids):
        return ids
    constants = {
        name: value
        for name, value in lease.items()
        if not isinstance(value, Combinable)
    }
    mine = set(
        due.model._default_manager.filter(pk__in=ids, **constants).values_list(
            "pk", flat=True
        )
    )
    return [pk for pk in ids if pk in mine]


def number_of(rows: QuerySet[Any, Any]) -> Coalesce:
    """Return the expression of how many rows there are, for a column of another query."""
    one_group = rows.order_by().annotate(one=Constant(1)).values("one")
    return Coalesce(
        Subquery(one_group.annotate(number=Count("pk")).values("number")), 0
    )


class OfEachRow(Expression):
    """A value of a field for each of these rows, by primary key: `Case` takes half a millisecond for each."""

    def __init__(self, field: "Field[Any, Any]", values: Mapping[int, Any]) -> None:
        self._key: Any = F("pk")
        self._field, self._values = field, values
        super().__init__(output_field=field)

    def get_source_expressions(self) -> list[Any]:
        """Return the key, which the query resolves: in a statement with joins its table has an alias."""
        return [self._key]

    def set_source_expressions(self, exprs: Sequence[Combinable | Expression]) -> None:
        (self._key,) = exprs

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[str | int, ...]]:
        field = self._field
        key, _no_parameters = compiler.compile(self._key)
        stored = (
            (pk, field.get_db_prep_save(value, connection))
            for pk, value in self._values.items()
        )
        sql = f"CASE {key} {' '.join(['WHEN %s THEN %s'] * len(self._values))} END"
        if connection.features.requires_casted_case_in_updates:
            sql = f"CAST({sql} AS {field.cast_db_type(connection)})"
        return sql, tuple(chain.from_iterable(stored))


def save_fields(row: Model, **values: Any) -> None:
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def update_each(
    rows: QuerySet[Row], columns: Mapping[int, Mapping[str, Any]], **same: Any
) -> int:
    """Update those of `rows` with these primary keys, each with its own values, and all with the `same`.

    One statement; return how many rows there were. Give hundreds of rows at most, each with the same columns.
    """
    names = next(iter(columns.values()), {})
    fields = rows.model._meta
    for name in names:
        values = {pk: own[name] for pk, own in columns.items()}
        first, *others = values.values()
        is_one = all(value == first for value in others)
        same[name] = (
            first if is_one else OfEachRow(cast(Any, fields.get_field(name)), values)
        )
    return rows.filter(pk__in=list(columns)).update(**same)


def insert_alike(alike: Model, columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert a row for each place of these columns, with the other values of `alike`; no keys are returned.

    What all rows have in common is written once: of a model with forty columns `bulk_create` prepares every
    value of every row. Give hundreds of rows at most.
    """
    table = alike._meta
    targets: list[str] = []
    sources: list[str] = []
    shared: list[Any] = []
    differing: list[list[Any]] = []
    quote = connection.ops.quote_name
    for field in table.local_concrete_fields:
        if field.generated or field.primary_key:
            continue
        targets.append(quote(str(field.column)))
        values = columns.get(field.attname, [field.pre_save(alike, add=True)])
        stored = [field.get_db_prep_save(value, connection) for value in values]
        if field.attname not in columns:
            sources.append("%s")
            shared += stored
            continue
        differing.append(stored)
        source = f"column{len(differing)}"
        if connection.features.requires_casted_case_in_updates:
            source = f"CAST({source} AS {field.cast_db_type(connection)})"
        sources.append(source)
    row = f"({', '.join(['%s'] * len(differing))})"
    rows = list(zip(*differing, strict=True))
    into = f"INSERT INTO {quote(table.db_table)} ({', '.join(targets)})"
    given = f"(VALUES {', '.join([row] * len(rows))}) AS given"
    statement = f"{into} SELECT {', '.join(sources)} FROM {given}"  # noqa: S608 -- names of columns
    with connection.cursor() as cursor:
        cursor.execute(statement, [*shared, *chain.from_iterable(rows)])


class GroupedWrites(Generic[Value]):
    """Writes of many threads: what arrives during one is written in one transaction after it.

    SQLite has one writer at a time, and a thread that waits sleeps and tries again; hundreds of threads that
    write one row each delay all other writers for seconds.
    """

    def __init__(
        self, begin: Callable[[], AbstractContextManager[object]] = transaction.atomic
    ) -> None:
        self._begin = begin
        self._lock = Lock()
        self._waiting: deque[tuple[Future[Value], Context, Callable[[], Value]]] = (
            deque()
        )

    def run(self, write: Callable[[], Value]) -> Value:
        """Write, with the context variables of this thread but maybe in another one; return what it returns.

        Where one of several writes fails, each is repeated on its own.
        """
        mine = Future[Value]()
        self._waiting.append((mine, copy_context(), write))
        with self._lock:
            if not mine.done():
                self._write(
                    [self._waiting.popleft() for _ in range(len(self._waiting))]
                )
        return mine.result()

    def _write(
        self, group: list[tuple[Future[Value], Context, Callable[[], Value]]]
    ) -> None:
        try:
            with self._begin() if len(group) > 1 else nullcontext():
                results = [context.run(write) for _, context, write in group]
            for (future, *_), result in zip(group, results, strict=True):
                future.set_result(result)
        except DatabaseError as error:
            for one in group if len(group) > 1 else ():
                self._write([one])
            if len(group) == 1:
                group[0][0].set_exception(error)
        finally:
            for future, *_ in group:
                future.cancel()  # no thread may wait for one that is not done
