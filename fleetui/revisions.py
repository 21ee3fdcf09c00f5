"""Optimistic concurrency: an edit says which revision it started from, and only the last one will do."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.db import IntegrityError, transaction

from fleetui.events import events_since

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class StaleEditError(Exception):
    """Someone saved the object after the revision that this edit started from.

    `changes` says who saved what in between, oldest first; `revision` is the current one.
    """

    def __init__(self, kind: str, name: str, *, expected: int, revision: int) -> None:
        self.kind, self.name, self.expected, self.revision = kind, name, expected, revision
        self.changes: list[dict[str, Any]] = [event.facts for event in events_since(kind, name, expected)]
        said = "; ".join(f"{one['by']}: {one['what']}" for one in self.changes) or "it was made anew"
        super().__init__(
            f"{kind} {name} is at revision {revision}, this edit started from {expected}: {said}. "
            "Read it again and repeat the edit."
        )


def refuse_stale(kind: str, name: str, *, expected: int | None, revision: int) -> None:
    """Raise StaleEditError unless `expected` is the current revision; None expects nothing."""
    if expected is not None and expected != revision:
        raise StaleEditError(kind, name, expected=expected, revision=revision)


def once_more_when_beaten(operation: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Run an operation in a transaction, and once more when somebody made the same object meanwhile.

    The second time the object is there, so that the operation finds it changed, or refuses a stale edit.
    """

    @wraps(operation)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        try:
            with transaction.atomic():
                return operation(*arguments, **options)
        except IntegrityError:
            with transaction.atomic():
                return operation(*arguments, **options)

    return run
