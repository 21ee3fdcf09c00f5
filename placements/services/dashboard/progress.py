"""Rollouts and staged runs in progress as bars: how far the clusters of each wave or stage have come."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet

from placements.engine.rollout.actions import BlockReason
from placements.explain.rollouts import result_from_document
from placements.explain.run_pages import Part, part_of_step
from placements.models import Rollout, Run, StagedRun
from placements.services.rollouts.lists import merge_runs
from placements.services.rollouts.queries import (
    part_counts,
    parts_of,
    result_in,
    runs_under_way,
    with_status,
)

NAMED_UP_TO = 120
"""Up to this number of clusters each has a tick of its own in the wave that it belongs to."""


class Tick(StrEnum):
    """How far a cluster has come; in this order within a wave, so that what blocks is seen."""

    UPDATED = "updated"
    FAILED = "failed"
    BLOCKED = "blocked"
    UPDATING = "updating"
    WAITING = "waiting"


Group = tuple[tuple[Tick, int], ...]
_TICKS = {
    Part.UPDATED: Tick.UPDATED,
    Part.UPDATING: Tick.UPDATING,
    Part.FAILED: Tick.FAILED,
    Part.NOT_AVAILABLE: Tick.BLOCKED,
    Part.PENDING: Tick.WAITING,
}
_BLOCKS = (
    BlockReason.UNREACHABLE,
    BlockReason.NOT_AVAILABLE,
    BlockReason.NOT_IN_FLEET,
    BlockReason.NOT_MONITORED,
    BlockReason.RETRY_LATER,
)
"""What a cluster itself is the reason of: other reasons end with the progress of the rollout."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run with the clusters of each wave or stage by how far they have come.

    `current` is the number of the wave or stage that is not done, None where there is one bar for all.
    """

    run: Run
    groups: tuple[Group, ...]
    current: int | None = None

    @property
    def total(self) -> int:
        return sum(count for group in self.groups for _, count in group)

    @property
    def updated(self) -> int:
        return sum(
            count
            for group in self.groups
            for tick, count in group
            if tick is Tick.UPDATED
        )

    @property
    def has_ticks(self) -> bool:
        return self.total <= NAMED_UP_TO


def runs_in_progress(most: int) -> list[RunProgress]:
    """Return the newest runs in progress with their bars: two queries, and one for each rollout."""
    lists: list[QuerySet[Any]] = []
    for runs in runs_under_way():
        unread = set(runs.model.LONG_COLUMNS) - {"waves", "plan", "sync_result"}
        rows = with_status(runs.select_related("placement"))
        lists.append(rows.defer(*unread, "placement__document").order_by("-id")[:most])
    return [_progress(run) for run in list(merge_runs(lists))[:most]]


def _progress(run: Any) -> RunProgress:
    if isinstance(run, StagedRun):
        return _of_staged_run(run)
    if run.placement is None or run.placement.placed_count > NAMED_UP_TO:
        return RunProgress(run, (_group(_of_large(run).items()),))
    return _of_rollout(run)


def _ticks_of(run: Rollout) -> Mapping[Part, Tick]:
    """Return the ticks of the parts; what is removed has one in a deletion only."""
    return {**_TICKS, Part.REMOVED: Tick.UPDATED} if run.is_deletion else _TICKS


def _of_large(run: Rollout) -> Counter[Tick]:
    counts: Counter[Tick] = Counter()
    ticks = _ticks_of(run)
    for part, count in part_counts(run).items():
        if part in ticks:
            counts[ticks[part]] += count
    waiting = run.sync_result.get("waitingCounts", {})
    blocked = sum(
        waiting.get(str(reason), 0)
        for reason in _BLOCKS
        if reason is not BlockReason.RETRY_LATER
    )
    for tick in (
        Tick.WAITING,
        Tick.UPDATING,
    ):  # what is blocked has not started, or does not become available
        moved = min(blocked, counts[tick])
        counts[tick] -= moved
        counts[Tick.BLOCKED] += moved
        blocked -= moved
    return counts


def _of_rollout(run: Rollout) -> RunProgress:
    known = _ticks_of(run)
    parts = parts_of(run).items()
    ticks = {name: known[part] for name, part in parts if part in known}
    if run.sync_result:
        blocked = (
            one
            for one in result_from_document(run.sync_result).blocked
            if one.reason in _BLOCKS
        )
        for one in blocked:
            if ticks.get(one.cluster) in (Tick.WAITING, Tick.UPDATING):
                ticks[one.cluster] = Tick.BLOCKED
    planned = [[name for name in wave if name in ticks] for wave in run.waves]
    in_waves = {name for wave in planned for name in wave}
    later = [name for name in ticks if name not in in_waves]
    groups = [
        _group(Counter(ticks[name] for name in wave).items())
        for wave in [*planned, later]
        if wave
    ]
    return _with_current(run, groups)


def _of_staged_run(run: StagedRun) -> RunProgress:
    result = result_in(run)
    stages = result.run.stages if result else ()
    groups = [
        _group(Counter(_TICKS[part_of_step(step)] for step in stage.steps).items())
        for stage in stages
        if stage.steps
    ]
    return _with_current(run, groups)


def _with_current(run: Run, groups: list[Group]) -> RunProgress:
    open_groups = (
        at
        for at, group in enumerate(groups, 1)
        if any(tick != Tick.UPDATED for tick, _ in group)
    )
    return RunProgress(run, tuple(groups), next(open_groups, None))


def _group(counts: Iterable[tuple[Tick, int]]) -> Group:
    order = list(Tick)
    present = [(tick, count) for tick, count in counts if count]
    return tuple(sorted(present, key=lambda one: order.index(one[0])))
