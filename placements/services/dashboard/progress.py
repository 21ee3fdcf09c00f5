"""Rollouts and staged runs in progress as bars: how far the clusters of each wave or stage have come."""

from collections import (
    Counter,
    defaultdict,
)
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from placements.explain.rollouts import result_from_document
from placements.explain.run_pages import (
    DONE,
    OWN_REASONS,
    Part,
    with_troubles,
)
from placements.models import Rollout, Run, StagedRun
from placements.services.rollouts.lists import merge_runs
from placements.services.rollouts.queries import (
    part_counts,
    parts_of_steps,
    runs_under_way,
    with_status,
)
from placements.services.rollouts.staged_runs import plan_of

NAMED_UP_TO = 120
"""Up to this number of clusters each has a tick of its own in the wave that it belongs to."""
Group = tuple[tuple[Part, int], ...]


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
            count for group in self.groups for part, count in group if part in DONE
        )

    @property
    def has_ticks(self) -> bool:
        return self.total <= NAMED_UP_TO

    @classmethod
    def of_rollout(
        cls, run: Rollout, counts: Iterable[tuple[str, Part]]
    ) -> "RunProgress":
        parts = {
            name: part
            for name, part in counts
            if run.is_deletion or part is not Part.REMOVED
        }
        if run.sync_result:
            parts = with_troubles(parts, result_from_document(run.sync_result))
        waves, later = run.wave_numbers, len(run.waves) + 1
        by_wave: dict[int, Counter[Part]] = defaultdict(Counter)
        for name, part in parts.items():
            by_wave[waves.get(name, later)][part] += 1
        groups = [_group(counter) for _, counter in sorted(by_wave.items())]
        # The next wave starts although clusters of the one before are stuck.
        return _with_current(run, groups, (*DONE, Part.FAILED, Part.NOT_AVAILABLE))

    @classmethod
    def of_staged_run(cls, run: StagedRun, *, now: datetime) -> "RunProgress":
        plan = plan_of(run)
        parts = parts_of_steps(run, plan, now=now)
        groups = [
            _group(Counter(parts[step.name] for step in stage.steps))
            for stage in (*plan.stages, plan.deletions)
            if stage.steps
        ]
        return _with_current(run, groups, DONE)


def runs_in_progress(most: int, *, now: datetime) -> list[RunProgress]:
    """Return the newest runs in progress with their bars; three queries, and one for each staged run."""
    lists: list[QuerySet[Any]] = []
    for runs in runs_under_way():
        unread = set(runs.model.LONG_COLUMNS) - {"waves", "plan", "sync_result"}
        rows = with_status(runs.select_related("placement"))
        lists.append(rows.defer(*unread, "placement__document").order_by("-id")[:most])
    newest: list[Any] = list(merge_runs(lists))[:most]
    small = {
        run.placement_id
        for run in newest
        if run.placement and run.placement.placed_count <= NAMED_UP_TO
    }
    rollouts = [run for run in newest if not isinstance(run, StagedRun)]
    counts = part_counts(rollouts, named=small)
    progress = []
    for run in newest:
        if isinstance(run, StagedRun):
            progress.append(RunProgress.of_staged_run(run, now=now))
        elif run.placement_id in small:
            progress.append(RunProgress.of_rollout(run, counts[run.placement_id]))
        else:
            group = _group(_of_large(run, counts[run.placement_id]))
            progress.append(RunProgress(run, (group,)))
    return progress


def _of_large(run: Rollout, counts: Mapping[tuple[str, Part], int]) -> Counter[Part]:
    parts: Counter[Part] = Counter()
    for (_, part), count in counts.items():
        if run.is_deletion or part is not Part.REMOVED:
            parts[part] += count
    waiting = run.sync_result.get("waitingCounts", {})
    blocked = sum(waiting.get(str(reason), 0) for reason in OWN_REASONS)
    # What is blocked has not started, or does not become available.
    for part in (Part.PENDING, Part.UPDATING):
        moved = min(blocked, parts[part])
        parts[part] -= moved
        parts[Part.NOT_AVAILABLE] += moved
        blocked -= moved
    return parts


def _with_current(
    run: Run, groups: list[Group], passed: tuple[Part, ...]
) -> RunProgress:
    open_groups = (
        at
        for at, group in enumerate(groups, 1)
        if any(part not in passed for part, _ in group)
    )
    return RunProgress(run, tuple(groups), next(open_groups, None))


def _group(counts: Counter[Part]) -> Group:
    return tuple((part, counts[part]) for part in Part if counts[part])
