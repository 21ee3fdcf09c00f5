"""Rollouts and staged runs in progress as bars: how far the clusters of each wave or stage have come."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import merge
from typing import Any

from placements.engine.rollout.actions import BlockReason
from placements.engine.rollout.staged_run import ClusterStep
from placements.explain.rollouts import result_from_document
from placements.models import Rollout, StagedRun
from placements.services.rollouts.approvals import with_status
from placements.services.rollouts.lists import AnyRun, began_at
from placements.services.rollouts.queries import (
    Part,
    part_counts,
    parts_of,
    with_failed,
)
from placements.services.rollouts.staged_queries import result_in
from placements.services.rollouts.under_way import runs_under_way

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

    run: AnyRun
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
    rolling, staged = runs_under_way()
    rolling = with_failed(
        rolling.select_related("placement").defer("placement__document")
    )
    staged = with_status(staged.select_related("placement"))
    staged = staged.defer("document", "strategy", "overrides", "placement__document")
    newest: tuple[Iterable[Any], ...] = (
        rolling.order_by("-id")[:most],
        staged.order_by("-id")[:most],
    )
    both = merge(*newest, key=began_at, reverse=True)
    return [_progress(run) for run in list(both)[:most]]


def _progress(run: AnyRun) -> RunProgress:
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
        _group(Counter(map(_tick_of_step, stage.steps)).items())
        for stage in stages
        if stage.steps
    ]
    return _with_current(run, groups)


def _with_current(run: AnyRun, groups: list[Group]) -> RunProgress:
    open_groups = (
        at
        for at, group in enumerate(groups, 1)
        if any(tick != Tick.UPDATED for tick, _ in group)
    )
    return RunProgress(run, tuple(groups), next(open_groups, None))


def _tick_of_step(step: ClusterStep) -> Tick:
    if step.done_at:
        return Tick.UPDATED
    if step.failed_at:
        return Tick.FAILED
    return Tick.UPDATING if step.is_running else Tick.WAITING


def _group(counts: Iterable[tuple[Tick, int]]) -> Group:
    order = list(Tick)
    present = [(tick, count) for tick, count in counts if count]
    return tuple(sorted(present, key=lambda one: order.index(one[0])))
