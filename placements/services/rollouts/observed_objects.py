"""The states of objects on clusters, as their drivers last read them."""

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from placements.explain.cluster_objects import LiveState
from placements.models import Binding, ObservedObjects


def store_objects(bindings: Collection[int], text: str, *, now: datetime) -> None:
    """Store the rows of `call_results.live_rows` for bindings; each state keeps the time since when it is so.

    A state is another one when UID or readiness are; numbers in its reason change all the time.
    """
    before = {
        pk: {state_key(row): row[-1] for row in rows}
        for pk, rows in ObservedObjects.objects.filter(pk__in=bindings).values_list("pk", "rows")
    }
    rows: list[list[Any]] = json.loads(text)
    ObservedObjects.objects.bulk_create(
        [
            ObservedObjects(
                binding_id=pk,
                rows=[[*row, before.get(pk, {}).get(state_key(row), now.isoformat())] for row in rows],
            )
            for pk in sorted(bindings)
        ],
        update_conflicts=True,
        unique_fields=["binding"],
        update_fields=["rows"],
    )


def state_key(row: list[Any]) -> tuple[Any, ...]:
    return tuple(row[:6])


def live_states(binding: Binding) -> list[LiveState]:
    """Return the states of the objects of a binding; none where its driver does not read them."""
    if binding.observed_at is None:
        return []
    found = ObservedObjects.objects.filter(pk=binding.pk).values_list("rows", flat=True).first()
    return [LiveState(*row) for row in found or ()]
