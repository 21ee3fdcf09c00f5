"""Every operation that an entry point reaches says what it does where a live hub decides."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from clusters.hubs.dispatch import MARK, on_live_hub
from placements.services.actions import ACTIONS

ENTRY_POINTS = (
    "clusters.management",
    "placements.admin",
    "placements.api",
    "placements.management",
    "placements.web",
)
OPERATIONS = ("clusters.operations", "placements.services")


def _modules(package: str) -> Iterator[ModuleType]:
    found = import_module(package)
    yield found
    for one in pkgutil.walk_packages(found.__path__, f"{package}."):
        yield import_module(one.name)


def _is_operation(value: Any) -> bool:
    """Return whether a function acts for a user: it takes who did it, or the options of an edit."""
    if not inspect.isfunction(value) or not value.__module__.startswith(OPERATIONS):
        return False
    parameters = inspect.signature(value).parameters.values()
    return any(
        (one.name == "by" and "User" in str(one.annotation)) or "EditOptions" in str(one.annotation)
        for one in parameters
    )


def reached() -> dict[str, Callable[..., Any]]:
    """Return the operations that entry points import, by name, and those of the table of actions."""
    values = [
        value for package in ENTRY_POINTS for module in _modules(package) for value in vars(module).values()
    ]
    values += [
        function
        for module in values
        if isinstance(module, ModuleType) and module.__name__.startswith(OPERATIONS)
        for function in vars(module).values()
    ]
    actions = [one.operation for one in ACTIONS.values()]
    values += [one.func if isinstance(one, partial) else one for one in actions]
    return {f"{one.__module__}.{one.__name__}": one for one in values if _is_operation(one)}


def test_every_operation_that_entry_points_reach_is_marked() -> None:
    found = reached()

    assert len(found) > 45
    assert [name for name, operation in sorted(found.items()) if not hasattr(operation, MARK)] == []


def test_an_operation_without_a_mark_is_found() -> None:
    def save(*, by: "User | None") -> None:  # type: ignore[name-defined]  # noqa: F821 -- its signature
        ...

    save.__module__ = "placements.services.placements"

    assert _is_operation(save)
    assert not hasattr(save, MARK)
    assert hasattr(on_live_hub(None)(save), MARK)
