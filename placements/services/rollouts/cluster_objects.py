"""The objects of placements on clusters as they were last read, and their differences."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.bulk import filter_by
from fleetui.pagination import BadCursorError
from placements.engine.rollout.state import EMPTY, FailureKind, Phase, objects_of
from placements.explain.cluster_objects import (
    ClusterObject,
    Difference,
    DifferenceType,
    LiveState,
    cluster_objects,
)
from placements.manifests.strategy import ApplyType
from placements.models import Binding, ObservedObjects, Placement
from placements.services.rollouts.call_results import MOST_OBJECTS

_COLUMNS = {
    DifferenceType.DRIFT: "drifted_objects",
    DifferenceType.DIFF: "diffed_objects",
}
_READ_AT_ONCE = 50
REAPPLIED = (Phase.APPLYING, Phase.APPLIED, Phase.AVAILABLE, Phase.FAILED)
"""In these phases the version of a cluster can be applied again."""


@dataclass(frozen=True, slots=True)
class DifferenceFilter:
    """Which differences are listed; empty values match all. `path` is a JSON pointer."""

    cluster: str = ""
    kind: str = ""
    path: str = ""
    type: DifferenceType | None = None

    def matches(self, one: Difference) -> bool:
        return self.kind in ("", one.kind) and (
            not self.path or one.concerns(self.path)
        )


def differences_page(
    placement: Placement, filters: DifferenceFilter, *, size: int, after: str = ""
) -> tuple[list[Difference], str | None]:
    """Return the objects that differ, by cluster and object, and the cursor of the next page.

    Bindings are read only as far as the page reaches. Raise BadCursorError.
    """
    beyond = _parse_cursor(after) if after else None
    differences: list[Difference] = []
    for difference in _differences(
        placement, filters, from_cluster=beyond[0] if beyond else ""
    ):
        if beyond and _key(difference) <= beyond:
            continue
        if len(differences) == size:
            return differences, base64.urlsafe_b64encode(
                json.dumps(_key(differences[-1])).encode()
            ).decode().rstrip("=")
        differences.append(difference)
    return differences, None


def _key(one: Difference) -> list[str]:
    return [one.cluster, one.type, one.group, one.kind, one.namespace, one.name]


def _parse_cursor(cursor: str) -> list[str]:
    try:
        key = json.loads(
            base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        )
    except (binascii.Error, ValueError, RecursionError) as error:
        raise BadCursorError from error
    if (
        not isinstance(key, list)
        or len(key) != 6
        or not all(isinstance(one, str) for one in key)
    ):
        raise BadCursorError
    if any("\0" in one for one in key):
        raise BadCursorError
    return key


def _differences(
    placement: Placement, filters: DifferenceFilter, *, from_cluster: str
) -> Iterator[Difference]:
    types = [column for column in _COLUMNS if filters.type in (None, column)]
    columns: dict[str, Any] = {
        _COLUMNS[difference_type]: [] for difference_type in types
    }
    rows = Binding.objects.filter(placement=placement).exclude(**columns)
    rows = filter_by(rows, cluster_name=filters.cluster)
    # Not sorted by the database, whose collation may differ from the order of the cursor.
    names = sorted(
        row
        for row in rows.values_list("cluster_name", flat=True)
        if row >= from_cluster
    )
    for start in range(0, len(names), _READ_AT_ONCE):
        several = rows.filter(cluster_name__in=names[start : start + _READ_AT_ONCE])
        part = {
            name: stored
            for name, *stored in several.values_list("cluster_name", *columns)
        }
        for name in sorted(part):
            differences = [
                Difference.of(name, found_by, row)
                for found_by, stored in zip(types, part[name], strict=True)
                for row in stored
            ]
            yield from sorted(filter(filters.matches, differences), key=_key)


def objects_on(binding: Binding) -> list[ClusterObject]:
    """Return the objects of what was last started on a cluster, with their states and differences."""
    snapshot = binding.resource_snapshot
    differences = [
        Difference.of(binding.cluster_name, found_by, row)
        for found_by, column in _COLUMNS.items()
        for row in getattr(binding, column)
    ]
    failed = objects_of(binding.failed_objects)
    is_rejected = binding.failure == FailureKind.REFUSED and not failed
    return list(
        cluster_objects(
            snapshot.applied_identities if snapshot else (),
            binding.phase,
            failed,
            differences,
            () if binding.phase in EMPTY else live_states(binding),
            is_report=binding.apply_type == ApplyType.REPORT_DIFF,
            is_nothing_sent=is_rejected or binding.failure == FailureKind.OVERRIDE,
            most_failed=MOST_OBJECTS,
        )
    )


def store_objects(texts: Mapping[int, str], *, now: datetime) -> None:
    """Store the rows of `call_results.live_rows` by binding; each state keeps the time since when it is so.

    A state is another one when UID or readiness are; numbers in its reason change all the time.
    """
    before = {
        pk: {state_key(row): row[-1] for row in rows}
        for pk, rows in ObservedObjects.objects.filter(pk__in=list(texts)).values_list(
            "pk", "rows"
        )
    }
    ObservedObjects.objects.bulk_create(
        [
            ObservedObjects(
                binding_id=pk,
                rows=[
                    [*row, before.get(pk, {}).get(state_key(row), now.isoformat())]
                    for row in json.loads(text)
                ],
            )
            for pk, text in sorted(texts.items())
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
    rows = (
        ObservedObjects.objects.filter(pk=binding.pk)
        .values_list("rows", flat=True)
        .first()
    )
    return [LiveState(*row) for row in rows or ()]
