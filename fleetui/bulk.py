"""Statements about many rows: in batches, and claims of due rows with a lease."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.models import Model, QuerySet
from django.db.models.expressions import Combinable, OrderBy

BATCH_SIZE = 500

Value = TypeVar("Value")
Row = TypeVar("Row", bound=Model)


def batched(values: Iterable[Value], size: int = BATCH_SIZE) -> Iterator[list[Value]]:
    """Yield the values in lists of at most `size`, so that a statement keeps few parameters."""
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch


def claim_batch(due: QuerySet[Row], *order: str | OrderBy, size: int, **lease: Any) -> list[int]:
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


def _claim(due: QuerySet[Row], ordered: QuerySet[Row], size: int, lease: Mapping[str, Any]) -> list[int]:
    ids = list(ordered.values_list("pk", flat=True)[:size])
    claimed = due.filter(pk__in=ids).update(**lease) if ids else 0
    if claimed == len(ids):
        return ids
    constants = {name: value for name, value in lease.items() if not isinstance(value, Combinable)}
    mine = set(due.model._default_manager.filter(pk__in=ids, **constants).values_list("pk", flat=True))
    return [pk for pk in ids if pk in mine]
