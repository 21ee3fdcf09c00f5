"""What API servers warned of when objects were applied or removed, as it is stored and shown."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from clusters.drivers.base import (
    Applied,
    DiffResult,
    DriverError,
    ObjectRef,
    ObjectWarnings,
    Removed,
)
from fleetui.apimachinery.model import mapping_at
from placements.engine.overrides import OverrideFailed
from placements.services.rollouts.call_results import (
    MESSAGE_LENGTH,
    MOST_OBJECTS,
    Answer,
    CallResult,
    ClusterCall,
    object_messages,
)


def with_warnings(call: ClusterCall, answer: Answer, result: CallResult) -> CallResult:
    """Return a result that also keeps what the API server warned of, of at most 100 objects.

    What a call did not write again, since it was unchanged, keeps its warnings.
    """
    if not isinstance(answer, (Applied, DiffResult, Removed, DriverError)):
        return result
    written = {one.object: one.messages for one in answer.warnings}
    manifests = () if isinstance(call.manifests, OverrideFailed) else call.manifests
    present = {
        (one.get("kind"), mapping_at(one, "metadata").get("name")) for one in manifests
    }
    kept = {
        ObjectRef(row["group"], row["kind"], row["namespace"], row["name"]): row[
            "messages"
        ]
        for row in call.binding.warnings
        if not manifests or (row["kind"], row["name"]) in present
    }
    rows = warning_rows(
        ObjectWarnings(*one) for one in sorted((kept | written).items())
    )
    is_same = rows == call.binding.warnings and not result.is_removed  # whose row goes
    return result if is_same else replace(result, warnings=json.dumps(rows))


def warning_rows(warnings: Iterable[ObjectWarnings]) -> list[dict[str, Any]]:
    rows = [
        {**asdict(one.object), "messages": list(one.messages)}
        for one in warnings
        if one.messages
    ]
    return rows[:MOST_OBJECTS]


def warning_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return what an API server warned of as one text, each message once; "" for nothing."""
    pairs = (
        (ObjectRef(row["group"], row["kind"], row["namespace"], row["name"]), message)
        for row in rows
        for message in row["messages"]
    )
    words = object_messages(pairs)
    return f"Warnings of the API server: {words}"[:MESSAGE_LENGTH] if words else ""
