"""Starts of updates, written into bindings; workers make the calls (`rules/lifecycle.md#starts`)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from fleetui.bulk import batched
from fleetui.task_queue import enqueue
from placements.engine.rollout.state import NO_FAILURE, Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, ResourceSnapshot
from placements.services.rollout_state import BindingColumns, RolloutContext
from placements.services.rollouts.call_results import (
    OBSERVE_AT_REST,
    OBSERVE_IN_ROLLOUT,
)
from placements.services.workqueue import RUN_CLUSTER_CALLS

MOST_VERSIONS = 10
"""So many of the versions that were started last on a cluster are kept."""


class RunChanged(Exception):
    """The rollout was synced, or changed by a user, meanwhile."""


@dataclass(frozen=True, slots=True)
class Content:
    """The version that a cluster should run, with its resources and overrides.

    `apply_strategy` is that of the placement where the driver acts on it, None for the defaults.
    """

    version: str
    snapshot: ResourceSnapshot | None
    overrides: Sequence[int] = ()
    apply_strategy: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class BindingUpdate:
    """A start that is to be written: into which row, and its columns."""

    pk: int
    columns: Mapping[str, Any]


def build_updates(
    binding: BindingColumns, content: Content | None, *, attempt: int, now: datetime
) -> BindingUpdate:
    """Return what a start writes into the row, without content a removal.

    A call that is running keeps its lease, and the next one waits for it.
    """
    columns: dict[str, Any] = {
        "phase": Phase.APPLYING if content else Phase.REMOVING,
        "phase_changed_at": now,
        "attempts": attempt,
        "retry_at": None,
        "untrackable_since": None,
        "message": "",
        "next_call_at": now,
        "objects_done": None,
        "unavailable_code": "",
        "repairs": [],
        "contested_since": None,
        **NO_FAILURE.columns(),
    }
    if not content:
        columns["warnings"] = []  # those of the removal follow
    else:
        columns |= {
            "state": BindingState.BOUND,
            "applied_version": content.version,
            "started_versions": started_versions(binding, content.version),
            "resource_snapshot_id": content.snapshot.pk if content.snapshot else None,
            "override_snapshots": list(content.overrides),
            "apply_strategy": content.apply_strategy,
        }
    return BindingUpdate(binding.pk, columns)


def started_versions(binding: BindingColumns, version: str) -> str:
    """Return the last versions that were started on a cluster: any other one is not of this database."""
    earlier = (binding.started_versions or binding.applied_version).split()
    return " ".join(
        [*(one for one in earlier if one != version), version][-MOST_VERSIONS:]
    )


def save_updates(
    updates: Sequence[BindingUpdate], context: RolloutContext, *, now: datetime
) -> None:
    """Write rows that were started, record that in the context, and enqueue the cluster calls.

    All rows that get the same are written in one statement: one with a case for each row takes seconds. Only
    in the transaction of the sync, which holds the placement. Raise RunChanged.
    """
    _check_unchanged(context, {update.pk for update in updates})
    alike: dict[str, tuple[Mapping[str, Any], list[int]]] = {}
    for update in updates:
        context.started[update.pk] = update.columns
        alike.setdefault(repr(update.columns), (update.columns, []))[1].append(
            update.pk
        )
    for columns, pks in alike.values():
        for part in batched(pks):
            Binding.objects.filter(pk__in=part).update(**columns)
    if any(
        cluster.is_releasable for cluster in context.state.clusters
    ):  # others are observed as often at rest
        Binding.objects.filter(
            placement=context.placement, next_call_at__gt=now + 1.5 * OBSERVE_AT_REST
        ).update(next_call_at=now + OBSERVE_IN_ROLLOUT)
    enqueue(RUN_CLUSTER_CALLS)


class _Expected(NamedTuple):
    """What of a binding a sync relies on."""

    state: str
    phase: str
    applied_version: str


def _check_unchanged(context: RolloutContext, starting: Collection[int]) -> None:
    """Raise RunChanged where what a sync relied on is not so any more.

    That is: where it starts something; which clusters are selected; and what else was started meanwhile, by
    an eviction or another sync, as that took from the same budgets. Results of calls to other clusters do not
    count: in a large rollout there are always some.
    """
    bindings = (*context.bindings, *context.left_behind)
    before = {
        binding.pk: _Expected(binding.state, binding.phase, binding.applied_version)
        for binding in bindings
    }
    locked = (
        Binding.objects.select_for_update()
        .filter(placement=context.placement)
        .order_by("pk")
    )
    after = {
        pk: _Expected(*values)
        for pk, *values in locked.values_list("pk", *_Expected._fields)
    }

    def is_selected(expected: _Expected | None) -> bool:
        return expected is not None and expected.state != BindingState.UNSCHEDULED

    for pk in {*before, *after}:
        was, became = before.get(pk), after.get(pk)
        if was == became:
            continue
        is_started = became is not None and became.phase in (
            Phase.APPLYING,
            Phase.REMOVING,
        )
        if pk in starting or is_started or is_selected(was) != is_selected(became):
            raise RunChanged
