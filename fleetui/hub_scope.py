"""The hub that a request, task or command works on; its rows are the only ones that queries find.

The scope is a context variable: a new thread starts without one. Without a scope every query raises, so that
a forgotten scope is an error and not a look at the rows of all hubs.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from django.db import models
from django.db.models.fields.related_lookups import RelatedExact
from django.db.models.sql.where import AND

from fleetui.errors import FleetError

LOCAL_HUB = 1
"""The primary key of the hub that this console is itself."""
UNKNOWN_HUB = -1
"""The scope of a request without a user to a hub that does not exist; it has no rows."""

Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)
_ALL_HUBS = 0
_hub: ContextVar[int | None] = ContextVar("hub", default=None)


class ScopeError(Exception):
    """A query or a new row outside of the scope of a hub."""


def current_hub_id() -> int:
    """Return the primary key of the hub in scope; the default of the column `hub`. Raise ScopeError."""
    if hub_id := _hub.get():
        return hub_id
    raise ScopeError("no hub is in scope: run this inside of in_hub()")


@contextmanager
def in_hub(hub_id: int) -> Iterator[None]:
    token = _hub.set(hub_id)
    try:
        yield
    finally:
        _hub.reset(token)


@contextmanager
def scopes_disabled() -> Iterator[None]:
    """Include the rows of all hubs in queries: only for `clusters.hub_queries.across_hubs`."""
    with in_hub(_ALL_HUBS):
        yield


class HubDecidesError(FleetError):
    """The live hub in scope decides this; the message says how it is done there."""

    problem_type = "hub-decides"
    title = "Not changed here"

    def __init__(self, way: str) -> None:
        super().__init__(f"The live hub decides this. {way}")


MOST_HUBS = 8
Value = TypeVar("Value")


class LatestByHub(Generic[Value]):
    """One value for each of the hubs that this process used last; a lock is up to the caller."""

    def __init__(self) -> None:
        self._values: OrderedDict[int, Value] = OrderedDict()

    def get(self) -> Value | None:
        return self._values.get(current_hub_id())

    def put(self, value: Value) -> None:
        """Store the value of the hub in scope, and drop that of the hub that was least recently changed."""
        self._values[current_hub_id()] = value
        self._values.move_to_end(current_hub_id())
        if len(self._values) > MOST_HUBS:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()


class HubManager(models.Manager[Row_co]):
    """The manager of a table with a column `hub`: its rows are those of the hub in scope."""

    def get_queryset(self) -> models.QuerySet[Row_co, Any]:
        rows = super().get_queryset()
        if _hub.get() != _ALL_HUBS:
            # What `filter(hub=…)` adds, in a quarter of its time: every query of the console starts here.
            field: Any = self.model._meta.get_field("hub")
            column = field.get_col(rows.query.get_initial_alias())
            rows.query.where.add(RelatedExact(column, current_hub_id()), AND)
        return rows
