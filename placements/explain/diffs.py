"""What changed between two plain documents, path by path: the short form for events."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placements.scheduling.faults import Keys, format_path

_LONGEST = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two documents differ; None: there was, or is, nothing there."""

    path: str
    before: str | None
    after: str | None


def differences(before: object, after: object) -> list[Difference]:
    """List the places where two documents differ, in the order of their keys."""
    return [
        Difference(format_path(keys), _words(old), _words(new)) for keys, old, new in _walk((), before, after)
    ]


_ABSENT: Any = object()


def _walk(keys: Keys, before: Any, after: Any) -> Iterator[tuple[Keys, Any, Any]]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _walk((*keys, key), before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walk((*keys, index), old, new)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _moved(keys, before, after)
    else:
        yield keys, before, after


def _moved(keys: Keys, before: list[Any], after: list[Any]) -> Iterator[tuple[Keys, Any, Any]]:
    """Name what went and what came, where a list has another length."""
    yield from (((*keys, index), old, _ABSENT) for index, old in enumerate(before) if old not in after)
    yield from (((*keys, index), _ABSENT, new) for index, new in enumerate(after) if new not in before)


def _words(value: Any) -> str | None:
    if value is _ABSENT:
        return None
    text = _flat(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_flat(inner)}" for key, inner in value.items()) or "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flat, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
