"""The numbered changes of a collection.

They are found by comparing the objects with what was numbered before, under a lock: code that changes an
object does not take part, and no change is lost however many write at once. Several changes of one object
between two comparisons are one.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from threading import BoundedSemaphore, Event
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from django.conf import settings
from django.db import transaction
from django.db.models import Case, When

from clusters.models import MemberCluster
from clusters.observation import not_observed
from fleetui.errors import FleetError
from placements.models import (
    ChangeType,
    CollectionChange,
    CollectionState,
    Placement,
    Rollout,
    StagedRun,
    WatchedKind,
)
from placements.services.dashboard.queries import pulse
from placements.services.health import healths_of, with_rollouts

PERIOD = timedelta(seconds=1)
"""A collection is compared at most this often, however many watch it."""
ALWAYS_AFTER = timedelta(seconds=10)
"""It is compared again after this time even if the version of the hub is the same."""
MOST_KEPT = 5_000
MOST_AT_ONCE = 500
_Versions: TypeAlias = dict[str, list[str]]


class WatchExpiredError(FleetError):
    """ObjectChanges since this version are no longer kept, or it was never issued."""

    status = HTTPStatus.GONE
    problem_type = "watch-expired"

    def __init__(self, kind: WatchedKind) -> None:
        super().__init__(f"The changes since this resourceVersion are not kept: list the {kind} again.")


class ObjectChange(NamedTuple):
    sequence: int
    type: ChangeType
    object_id: int
    name: str


@dataclass(frozen=True, slots=True)
class ObjectChanges:
    """The changes of a collection up to `sequence`, at most one of each object."""

    sequence: int
    changes: tuple[ObjectChange, ...]


def current_sequence(kind: WatchedKind, *, now: datetime) -> int:
    """Return the version of a collection as it is now: read the objects after this call."""
    return _compare(kind, now=now).sequence


def changes_since(kind: WatchedKind, since: int, *, now: datetime) -> ObjectChanges:
    """Return the first changes after a version. Raise WatchExpiredError."""
    state = _looked_at(kind, now=now)
    if not state.oldest <= since <= state.sequence:
        raise WatchExpiredError(kind)
    if since == state.sequence:
        return ObjectChanges(since, ())
    rows = CollectionChange.objects.filter(kind=kind, sequence__gt=since, sequence__lte=state.sequence)
    changes = list(
        rows.order_by("sequence").values_list("sequence", "type", "object_id", "name")[:MOST_AT_ONCE]
    )
    latest: dict[int, ObjectChange] = {}
    for sequence, name_of_type, object_id, name in changes:
        sort = ChangeType(name_of_type)
        before = latest.pop(object_id, None)
        if before and before.type is ChangeType.ADDED and sort is ChangeType.MODIFIED:
            sort = ChangeType.ADDED
        latest[object_id] = ObjectChange(sequence, sort, object_id, name)
    return ObjectChanges(changes[-1][0] if changes else state.sequence, tuple(latest.values()))


def _looked_at(kind: WatchedKind, *, now: datetime) -> CollectionState:
    """Return the state of a collection, compared if that was not done within the period."""
    state = CollectionState.objects.filter(kind=kind).defer("versions").first()
    if state is None:
        return _compare(kind, now=now)
    if abs(now - state.looked_at) < PERIOD:
        return state
    # One of the watchers compares; the others use the state as it is.
    mine = CollectionState.objects.filter(pk=state.pk, looked_at=state.looked_at).update(looked_at=now)
    return _compare(kind, now=now, pulse=pulse()) if mine else state


def _compare(kind: WatchedKind, *, now: datetime, pulse: str = "") -> CollectionState:
    """Number what changed. With a version of the hub: only if that has changed, or after some time."""
    if pulse:
        same = CollectionState.objects.filter(kind=kind, pulse=pulse, compared_at__gt=now - ALWAYS_AFTER)
        if state := same.defer("versions").first():
            return state
    with transaction.atomic():
        first = int(now.timestamp() * 1000)  # no state before it can have given out this version
        state, is_new = CollectionState.objects.select_for_update().get_or_create(
            kind=kind, defaults={"sequence": first, "oldest": first, "compared_at": now, "looked_at": now}
        )
        versions = _VERSIONS[kind](now)
        events = [] if is_new else list(_events(state, versions))
        CollectionChange.objects.bulk_create(events, batch_size=500)
        state.sequence += len(events)
        if state.sequence - MOST_KEPT > state.oldest:
            state.oldest = state.sequence - MOST_KEPT
            CollectionChange.objects.filter(kind=kind, sequence__lte=state.oldest).delete()
        new = {"versions": versions, "sequence": state.sequence, "oldest": state.oldest}
        CollectionState.objects.filter(pk=state.pk).update(
            pulse=pulse, compared_at=now, looked_at=now, **(new if events or is_new else {})
        )
    return state


def _events(state: CollectionState, versions: _Versions) -> Iterable[CollectionChange]:
    before: _Versions = state.versions
    changed = [
        (ChangeType.MODIFIED if key in before else ChangeType.ADDED, key, name)
        for key, (digest, name) in versions.items()
        if key not in before or before[key][0] != digest
    ]
    gone = [(ChangeType.DELETED, key, before[key][1]) for key in before if key not in versions]
    for sequence, (sort, key, name) in enumerate((*gone, *changed), start=state.sequence + 1):
        yield CollectionChange(kind=state.kind, sequence=sequence, type=sort, object_id=int(key), name=name)


def _digest(*values: object) -> str:
    return hashlib.blake2b(repr(values).encode(errors="replace"), digest_size=8).hexdigest()


def _of_clusters(now: datetime) -> _Versions:
    columns = ("revision", "membership", "verdict", "verdict_reason", "verdict_since", "driver")
    reported = ("hub_changes", "leaving_since", "agent_joined", "agent_healthy")
    silent = Case(When(not_observed(now=now), then=True), default=False)
    rows: Any = MemberCluster.objects.order_by().annotate(silent=silent)
    rows = rows.values_list("pk", "name", *columns, *reported, "silent")
    return {str(row[0]): [_digest(*row[2:]), row[1]] for row in rows.iterator(chunk_size=5000)}


def _of_rollouts(_now: datetime) -> _Versions:
    columns = ("state", "progress_version", "ended_at", "ended_reason", "resource_number")
    rows = Rollout.objects.order_by().values_list("pk", "placement_name", "number", *columns)
    return {str(pk): [_digest(*values), f"{name}/{number}"] for pk, name, number, *values in rows.iterator()}


def _of_staged_runs(_now: datetime) -> _Versions:
    columns = ("revision", "status", "progress_version", "started_at", "ended_at", "resource_number")
    rows = StagedRun.objects.order_by().values_list("pk", "full_name", *columns)
    return {str(pk): [_digest(*values), key] for pk, key, *values in rows.iterator(chunk_size=5000)}


def _of_placements(now: datetime) -> _Versions:
    """Return the versions of placements, in which their status counts as the list shows it; two queries."""
    rows = list(with_rollouts(Placement.objects.defer("document", "hub_conditions")).order_by())
    healths = healths_of(rows, now=now)
    return {
        str(row.pk): [
            _digest(
                *(row.changes, row.is_fulfilled, row.placed_count, row.is_due, row.selection_faults),
                *(row.number_of_clusters, row.semantics, row.deleting_since, row.decisions_made),
                # Without the minutes for which its clusters were not observed: they are no change.
                replace(one, condition="") if (one := healths[row.pk]).counts.not_observed else one,
            ),
            row.full_name,
        ]
        for row in rows
    }


_VERSIONS: dict[WatchedKind, Callable[[datetime], _Versions]] = {
    WatchedKind.CLUSTERS: _of_clusters,
    WatchedKind.PLACEMENTS: _of_placements,
    WatchedKind.ROLLOUTS: _of_rollouts,
    WatchedKind.STAGED_RUNS: _of_staged_runs,
}


RETRY_AFTER = 5
"""Seconds after which a client repeats a watch that was answered at once because no thread was free."""
_holders = BoundedSemaphore(settings.WATCH_HOLDERS)
_never = Event()


def held_changes(kind: WatchedKind, since: int, *, seconds: float) -> tuple[ObjectChanges, bool]:
    """Return the changes after a version as soon as there are some, at the latest after some seconds.

    The second value is whether the watch waited; it does not where other watches have all threads that they
    may have, so that pages and other requests keep theirs. Raise WatchExpiredError.
    """
    until = monotonic() + seconds
    changes = changes_since(kind, since, now=datetime.now(UTC))
    if changes.changes or seconds <= 0:
        return changes, True
    if not _holders.acquire(blocking=False):
        return changes, False
    try:
        while not changes.changes and (left := until - monotonic()) > 0:
            _never.wait(min(left, PERIOD.total_seconds()))
            changes = changes_since(kind, since, now=datetime.now(UTC))
        return changes, True
    finally:
        _holders.release()
