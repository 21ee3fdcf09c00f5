"""Manifests that a hub accepted: what is not understood of them is left out, path by path."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from fleetui.apimachinery.errors import InvalidManifest, split_path
from placements.hubs.projection.documents import HubDocument

_ROUNDS = 8
Parsed = TypeVar("Parsed")


def understood(
    document: HubDocument,
    parse: Callable[[object], Parsed],
    stored: dict[str, Any] | None = None,
) -> tuple[Parsed, dict[str, Any]] | None:
    """Return what is understood of a manifest, parsed and as it is stored; of the object itself by default.

    The hub accepted it, so it is not refused here: what a newer API allows is left out, path by path. None if
    what is left is no manifest; the object is marked then.
    """
    stored = deepcopy(stored or document.manifest(document.spec))
    for _ in range(_ROUNDS):
        try:
            return parse(stored), stored
        except InvalidManifest as invalid:
            paths = sorted({one.path for one in invalid.errors}, reverse=True)
        for path in paths:
            document.reject(path)
        # Each list is cut from its end, so that the places before keep their numbers.
        keys = sorted(
            map(split_path, paths),
            key=lambda one: [(isinstance(key, str), key) for key in one],
        )
        cuts = [_leave_out(stored, one) for one in reversed(keys)]
        if not any(cuts):
            break
    document.error = "the manifest is not understood"
    return None


def fill_document(
    row: Any, document: HubDocument, *, parse: Callable[[object], object]
) -> bool:
    """Set the manifest of a row, and when its object was created; False if nothing of it is understood."""
    pair = understood(document, parse)
    if pair is None:
        return False
    _, row.document = pair
    row.created_at = document.created_at
    return True


def _leave_out(stored: dict[str, Any], keys: Sequence[str | int]) -> bool:
    """Remove the value at this place, or the item of a list without it; return whether there was one."""
    if keys[:1] != ("spec",) and keys[:2] != ("metadata", "annotations"):
        return False
    around: list[Any] = [stored]
    for key in keys[:-1]:
        if not _has(around[-1], key):
            break
        around.append(around[-1][key])
    for depth in range(len(around) - 1, 0, -1):
        if _has(around[depth], keys[depth]):
            del around[depth][keys[depth]]
            return True
        if isinstance(around[depth - 1], list):
            del around[depth - 1][keys[depth - 1]]
            return True
    return False


def _has(values: Any, key: str | int) -> bool:
    if isinstance(values, list):
        return isinstance(key, int) and key < len(values)
    return isinstance(values, dict) and key in values
