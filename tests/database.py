"""What tests do with the database as a whole, and with what the process remembers of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Group
from django.core.cache import caches
from django.db import connection, transaction
from django.db.models import Model

from clusters.hub_queries import live_hubs
from clusters.kubernetes_drivers import hub_id
from clusters.models import Hub
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.permissions import Role
from placements.models import ProblemBook
from placements.services.problems.book import compare
from tests.caches import (
    forget_budgets,
    forget_cached_fleet,
    forget_cached_records,
    forget_polls,
    forget_problems,
)


def forget_caches() -> None:
    """Drop what the process remembers of the database, for example after a rollback."""
    forget_cached_fleet()
    hub_id.cache_clear()
    forget_cached_records()
    forget_polls()
    caches["process"].clear()
    forget_budgets()
    forget_problems()


_local_hub: dict[str, Any] = {
    "id": LOCAL_HUB,
    "name": "local",
    "kind": "local",
    "mode": "operate",
    "state": "live",
    "created_at": datetime.now(UTC),
    "created_by": "system",
}


def restore_migrated_rows() -> None:
    """Make the local hub and the roles again where a test with real transactions left an empty database.

    It is the same hub as before: `load_once` puts rows only where they were made.
    """
    local = Hub.objects.filter(pk=LOCAL_HUB).values().first()
    if local is None:
        Hub.objects.create(**_local_hub)
    else:
        _local_hub.update(local)
    there = set(Group.objects.values_list("name", flat=True))
    Group.objects.bulk_create(
        [Group(name=role.value) for role in Role if role.value not in there]
    )


@contextmanager
def rolled_back() -> Iterator[None]:
    """Undo what is written inside, so that a loop starts every pass with the same database."""
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        forget_caches()


def compare_all(*, now: datetime) -> None:
    for hub in (LOCAL_HUB, *live_hubs().values_list("pk", flat=True)):
        with in_hub(hub):
            compare(now=now)


def compare_for_long() -> None:
    """Compare problems and statuses of the hub in scope, so that no page of a walk does: it takes 0.1 s."""
    compare(now=datetime.now(UTC))
    ProblemBook.objects.filter(hub=current_hub_id()).update(
        compared_at=datetime.now(UTC) + timedelta(days=1)
    )


Rows = list[tuple[Any, ...]]
_loaded: dict[str, tuple[list[Rows], list[Rows]]] = {}
"""What the tables of this project held before something was loaded for the first time, and afterwards."""


def load_once(name: str, load: Callable[[], object]) -> None:
    """Fill the database by `load`; after the first time in this process, insert the rows that it made.

    Use it where many tests start from the same content, which must not depend on the test. Where the database
    holds something else already, or is no SQLite, `load` is called each time.
    """
    if (
        connection.vendor != "sqlite"
    ):  # few tests run there, so the types of columns are not worth it
        load()
        return
    before = _read_all()
    if name not in _loaded:
        load()
        _loaded[name] = before, _read_all()
    elif before != _loaded[name][0]:
        load()
    else:
        for model, old, rows in zip(_models(), *_loaded[name], strict=True):
            if old != rows:
                _replace(model, rows)


@cache
def _models() -> list[type[Model]]:
    everything = apps.get_models(include_auto_created=True)
    return [
        model
        for model in everything
        if model._meta.app_label in ("fleetui", "clusters", "placements")
    ]


@cache
def _stored(model: type[Model]) -> list[str]:
    """Return the columns of a model, except those that the database derives."""
    fields = (
        field for field in model._meta.local_concrete_fields if not field.generated
    )
    return [connection.ops.quote_name(str(field.column)) for field in fields]


@cache
def _columns(model: type[Model]) -> str:
    return ", ".join(_stored(model))


@cache
def _which_are_filled() -> str:
    tables = (model._meta.db_table for model in _models())
    return f"SELECT {', '.join(f'EXISTS (SELECT 1 FROM {table})' for table in tables)}"


def _read_all() -> list[Rows]:
    """Return the rows of each table; one statement finds those that are empty, which are most."""
    with connection.cursor() as cursor:
        cursor.execute(_which_are_filled())
        filled = cursor.fetchone()
    return [
        _read(model) if is_filled else []
        for model, is_filled in zip(_models(), filled, strict=True)
    ]


def _read(model: type[Model]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_columns(model)} FROM {model._meta.db_table} ORDER BY 1"
        )
        return cursor.fetchall()


def _replace(model: type[Model], rows: Rows) -> None:
    places = ", ".join(["%s"] * len(_stored(model)))
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")
        cursor.executemany(
            f"INSERT INTO {model._meta.db_table} ({_columns(model)}) VALUES ({places})",
            rows,
        )


NO_CHANGE = {"access_accessevent", "django_session"}
"""Tables that every request may write to."""
COMPUTED = {
    ("placements_placement", "health"),
    ("placements_placement", "health_level"),
}
COMPUTED |= {("access_apitoken", "last_used_at")}
"""Columns that no request decides: statuses are computed from all else, where that is due."""


def stored_rows() -> dict[str, dict[Any, tuple[Any, ...]]]:
    """Return all rows by table and primary key, without what no request decides."""
    return {
        model._meta.label: _rows_of(model)
        for model in apps.get_models()
        if _is_compared(model)
    }


def _is_compared(model: type[Model]) -> bool:
    return model._meta.db_table not in NO_CHANGE


def _rows_of(model: type[Model]) -> dict[Any, tuple[Any, ...]]:
    table = model._meta.db_table
    columns = [str(field.column) for field in model._meta.local_concrete_fields]
    names = [
        str(model._meta.pk.column),
        *(column for column in columns if (table, column) not in COMPUTED),
    ]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {', '.join(map(connection.ops.quote_name, names))} FROM {table}"
        )
        return {row[0]: row[1:] for row in cursor.fetchall()}


def database_dump() -> str:
    """Return all rows of all tables as text."""
    with connection.cursor() as cursor:
        rows: list[Any] = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += cursor.fetchall()
    return repr(rows)
