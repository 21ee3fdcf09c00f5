"""The version of a hub: it moves with each request, task and command that wrote to the tables of the hub.

Requests, tasks and commands run in `noticed_changes`. It looks at the statements themselves, so that no
operation can forget to report what it changes. The version is written after the commit, by a short statement
outside of any transaction, at the end and meanwhile once a second: the pages of a long pass move. A lost mark
costs the time until the next one: pages are rendered again after a minute, and the sweep compares.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from time import monotonic, time
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils.module_loading import import_string

from fleetui.hub_scope import current_hub_id

log = logging.getLogger(__name__)

MARK_SECONDS, READ_SECONDS = 1.0, 0.5
_WRITE = re.compile(r'(?:INSERT(?: OR IGNORE)? INTO|UPDATE|DELETE FROM) "(\w+)"')
_is_noticed: ContextVar[bool] = ContextVar("is_noticed", default=True)


@cache
def shown_tables() -> frozenset[str]:
    """Return the tables of what a hub has; a model of books that no page shows says so by `is_shown`."""
    return frozenset(
        model._meta.db_table
        for model in apps.get_models()
        if getattr(model, "is_shown", True)
        and any(field.name == "hub" for field in model._meta.fields)
    )


_versions: dict[int, tuple[float, str]] = {}


def hub_version() -> str:
    """Return the version of the hub in scope, in this process at most half a second old.

    With each minute it is another one, as silence and ages are no change.
    """
    hub = current_hub_id()
    read_at, version = _versions.get(hub, (0.0, ""))
    if monotonic() - read_at < READ_SECONDS:
        return version
    return version_as_of(import_string(settings.VERSION_READER)(hub))


def version_as_of(stored: int) -> str:
    version = f"{stored}.{int(time() // 60)}"
    _versions[current_hub_id()] = monotonic(), version
    return version


class _Changes:
    """The hubs that this thread has written to since the last mark."""

    def __init__(self, *, by_request: bool) -> None:
        self._by_request = by_request
        self._hubs: set[int] = set()
        self._marked_at = monotonic()

    def notice(
        self,
        execute: Any,
        sql: Any,
        params: Any,
        many: Any,
        context: Any,
    ) -> Any:
        """Run a statement; one that changed no row is no change."""
        result = execute(sql, params, many, context)
        write = _WRITE.match(sql) if _is_noticed.get() else None
        # SQLite counts the rows of RETURNING once they are read.
        has_changed = context["cursor"].rowcount != 0 or " RETURNING " in sql
        if write and has_changed and write[1] in shown_tables():
            self._hubs.add(current_hub_id())
        is_time = monotonic() - self._marked_at >= MARK_SECONDS
        if is_time and self._hubs and not connection.in_atomic_block:
            self.mark()
        return result

    def mark(self) -> None:
        hubs, self._hubs = self._hubs, set()
        self._marked_at = monotonic()
        for hub in hubs:
            try:
                import_string(settings.CHANGE_RECORDER)(
                    hub, by_request=self._by_request
                )
            except DatabaseError as error:
                self._hubs.add(hub)  # the next mark is made for it, too
                log.warning(
                    "change not marked: hub=%s error=%s", hub, type(error).__name__
                )
            _versions.pop(hub, None)


@contextmanager
def noticed_changes(*, by_request: bool = True) -> Iterator[None]:
    """Move the version of each hub whose tables are written to in this thread.

    What a user requested, on a page or by a command, is seen by the next reader; the rest by the sweep.
    """
    changes = _Changes(by_request=by_request)
    try:
        with connection.execute_wrapper(changes.notice):
            yield
    finally:
        changes.mark()


@contextmanager
def unnoticed(*, when: bool = True) -> Iterator[None]:
    """Write what no page shows, or what says the same as before: leases, heartbeats, what is rolled back."""
    token = _is_noticed.set(_is_noticed.get() and not when)
    try:
        yield
    finally:
        _is_noticed.reset(token)
