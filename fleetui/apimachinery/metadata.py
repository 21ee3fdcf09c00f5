"""The metadata that this hub sets in documents that are read, as Kubernetes does."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

SET_BY_HUB = ("uid", "resourceVersion", "generation", "creationTimestamp")
"""What is not stored."""


def without_hub_metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shallow copy of a document without what a hub sets in its metadata."""
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.keys().isdisjoint(SET_BY_HUB):
        return dict(document)
    kept = {key: value for key, value in metadata.items() if key not in SET_BY_HUB}
    return {**document, "metadata": kept}


def with_hub_metadata(
    document: Mapping[str, Any],
    status: Mapping[str, Any] | None = None,
    *,
    uid: str,
    revision: int,
    generation: int,
    created_at: datetime,
) -> dict[str, Any]:
    metadata = {
        **document["metadata"],
        "uid": uid,
        "generation": generation,
        "resourceVersion": resource_version(revision, status),
        "creationTimestamp": f"{created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    return {
        **document,
        "metadata": metadata,
        **({} if status is None else {"status": status}),
    }


def next_generation(
    generation: int, before: Mapping[str, Any], after: Mapping[str, Any]
) -> int:
    """Return the generation after a change: labels and annotations alone do not raise it."""
    return generation if _specified(before) == _specified(after) else generation + 1


def _specified(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in document.items()
        if key not in ("metadata", "status")
    }


def resource_version(revision: int | str, status: object = None) -> str:
    """Return the version of an object: its revision, with a digest of the status that changes without it."""
    if status is None:
        return str(revision)
    text = json.dumps(status, sort_keys=True, default=str)
    return f"{revision}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
