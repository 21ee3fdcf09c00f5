"""Optimistic concurrency: an edit names its base revision, which must be the current one."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, ParamSpec, TypeVar

from django.db import IntegrityError, transaction

from fleetui.audit import events_since
from fleetui.errors import FleetError
from fleetui.transactions import repeated_after_deadlock

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class RevisionConflict(FleetError):
    """The object was saved after the base revision of this edit.

    `changes` are the changes in between, oldest first; `revision` is the current one.
    """

    status = HTTPStatus.PRECONDITION_FAILED
    problem_type = "stale-edit"

    def __init__(self, kind: str, name: str, *, expected: int, revision: int) -> None:
        self.kind, self.name, self.expected, self.revision = (
            kind,
            name,
            expected,
            revision,
        )
        self.changes: list[dict[str, Any]] = [
            event.facts for event in events_since(kind, name, expected)
        ]
        changes = (
            "; ".join(f"{change['by']}: {change['what']}" for change in self.changes)
            or "it was created again"
        )
        super().__init__(
            f"{kind} {name} is at revision {revision}, this edit started from {expected}: {changes}. "
            "Read it again and repeat the edit."
        )

    def problem_facts(self) -> dict[str, Any]:
        return {"revision": self.revision, "changes": self.changes}


def check_revision(
    kind: str, name: str, *, expected: int | None, revision: int
) -> None:
    """Raise RevisionConflict unless `expected` is the current revision; None expects nothing."""
    if expected is not None and expected != revision:
        raise RevisionConflict(kind, name, expected=expected, revision=revision)


def retry_on_conflict(
    operation: Callable[Arguments, Answer],
) -> Callable[Arguments, Answer]:
    """Run an operation in a transaction, and a second time if another one created the same object meanwhile.

    The second run finds the object, so that it changes it or raises a conflict. One that the database ended
    as one of a deadlock is run a second time, too.
    """

    @wraps(operation)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        def attempt() -> Answer:
            with transaction.atomic():
                return operation(*arguments, **options)

        try:
            return repeated_after_deadlock(attempt)
        except IntegrityError:
            return attempt()

    return run
