"""Deletes what others read, between any two queries of a page, a call or a task."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from clusters.models import MemberCluster
from fleetui.hub_scope import in_hub
from placements.hubs.projection.placements import delete_placements
from placements.models import Placement
from tests.database import forget_caches, rolled_back


@dataclass
class Vanishing:
    """Deletes something before a query, as another process would have; `seen` counts the queries.

    Within a transaction nothing is deleted: it may hold the locks of what it reads. References are checked
    where a transaction would end: within that of a test, SQLite checks none.
    """

    delete: Callable[[], object]
    before: int
    seen: int = 0
    is_done: bool = False
    last_sql: str = ""
    _depth: int = field(default_factory=lambda: len(connection.savepoint_ids))
    _is_inside: bool = False
    _is_written: bool = False

    def __call__(
        self, execute: Any, sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if sql.startswith(("RELEASE", "ROLLBACK", "PRAGMA")):
            return execute(sql, params, many, context)
        is_inside = len(connection.savepoint_ids) > self._depth
        if not is_inside and self._is_written:
            self._is_written = False
            connection.check_constraints()
        if not self.is_done and not (is_inside and self._is_inside):
            self.seen += 1
            if self.seen == self.before:
                self.is_done = True
                self.last_sql = sql
                self.delete()
        self._is_inside = is_inside or sql.startswith("SAVEPOINT")
        self._is_written = self._is_written or (
            self.is_done and sql.startswith(("INSERT", "UPDATE"))
        )
        return execute(sql, params, many, context)


def deleted_before(
    number: int, run: Callable[[], object], delete: Callable[[], object] = lambda: None
) -> tuple[Vanishing, object]:
    """Run something with a deletion before the query of this number; return the result or the exception."""
    with rolled_back():
        vanishing = Vanishing(delete, number)
        result: object
        with connection.execute_wrapper(vanishing):
            try:
                result = run()
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 -- it is what a test is about
                result = error
        if not isinstance(result, BaseException):
            try:
                connection.check_constraints()
            except Exception as error:  # noqa: BLE001 -- as above
                result = error
    return vanishing, result


def placement_is_deleted(name: str, *, hub: int) -> Callable[[], None]:
    def delete() -> None:
        with in_hub(hub):
            pks = list(
                Placement.objects.filter(full_name=name).values_list("pk", flat=True)
            )
            delete_placements(pks, now=datetime.now(UTC))

    return delete


def cluster_is_deleted(name: str, *, hub: int) -> Callable[[], None]:
    def delete() -> None:
        with in_hub(hub):
            MemberCluster.objects.filter(name=name).delete()

    return delete


Deletions = dict[str, Callable[[], None]]


def faults(
    run: Callable[[], Any], deletions: Deletions, *, first: int = 1, every: int = 1
) -> list[str]:
    """Return before which query a deletion makes a page, a call or a task fail."""
    forget_caches()
    undisturbed, _ = deleted_before(0, run)
    found = []
    for name, delete in deletions.items():
        for number in range(first, undisturbed.seen + 1, every):
            vanishing, answer = deleted_before(number, run, delete)
            if (
                isinstance(answer, BaseException)
                or getattr(answer, "status_code", 200) >= 500
            ):
                found.append(
                    f"{name} deleted before query {number}, {vanishing.last_sql[:120]}: {answer!r}"
                )
    return found
