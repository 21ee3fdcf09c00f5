"""Runs of both sorts in one list, the newest first: rolling updates and staged runs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from heapq import merge
from typing import TypeAlias

from django.db.models import Q, QuerySet
from django.db.models.fields.json import KT

from placements.models import Rollout, StagedRun
from placements.queries.runs import runs_to_show
from placements.queries.staged import runs_matching
from placements.rollout.staged_facts import RunStatus

AnyRun: TypeAlias = Rollout | StagedRun
_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")
_FIRST = (10**18 - 1, 10**18 - 1)


class Standing(StrEnum):
    """How a run of either sort stands, as far as a list tells them apart."""

    RUNNING = "running"
    FINISHED = "finished"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"
    FAILED = "failed"


_STAGED = {
    Standing.RUNNING: Q(ended_at=None),
    Standing.FINISHED: Q(status=RunStatus.SUCCEEDED),
    Standing.SUPERSEDED: Q(pk__in=()),
    Standing.STOPPED: Q(status=RunStatus.ABANDONED),
    Standing.FAILED: Q(status=RunStatus.FAILED),
}


@dataclass(frozen=True, slots=True)
class RunsPage:
    """Some runs, and the cursor of the next page; None at the end."""

    rows: list[AnyRun]
    after: str | None


def began_at(run: AnyRun) -> datetime:
    """Say when a run was made."""
    return run.started_at if isinstance(run, Rollout) else run.created_at


def newest_run(placement: str) -> AnyRun | None:
    """Give the run of either sort that began last, of the placement that has this name or had it last."""
    rolling = Rollout.objects.filter(placement_name=placement).order_by("-id").first()
    staged = StagedRun.objects.filter(placement_name=placement).order_by("-id").first()
    return max((one for one in (rolling, staged) if one is not None), key=began_at, default=None)


def active_runs(*, placement: str, most: int) -> list[AnyRun]:
    """Give the newest runs of each sort that have not ended."""
    rolling = _rolling(placement, Standing.RUNNING).order_by("-id")[:most]
    staged = _staged(placement, Standing.RUNNING).order_by("-id")[:most]
    return list(_merged(rolling, staged))


def runs_page(*, placement: str, standing: Standing | None, after: str, size: int) -> RunsPage:
    """Give a page of the runs that stand so, or, without, of those that have ended.

    The cursor names the last run of each sort. A cursor that was made up begins at the first page.
    """
    found = _CURSOR.fullmatch(after)
    last = (int(found[1]), int(found[2])) if found else _FIRST
    rolling = _rolling(placement, standing).filter(pk__lt=last[0]).order_by("-id")[: size + 1]
    staged = _staged(placement, standing).filter(pk__lt=last[1]).order_by("-id")[: size + 1]
    rows = list(_merged(rolling, staged))
    return RunsPage(rows[:size], _cursor(rows[:size], last) if len(rows) > size else None)


def _cursor(rows: Sequence[AnyRun], last: tuple[int, int]) -> str:
    rolling = [run.pk for run in rows if isinstance(run, Rollout)]
    staged = [run.pk for run in rows if isinstance(run, StagedRun)]
    return f"{min(rolling, default=last[0])}.{min(staged, default=last[1])}"


def _merged(rolling: QuerySet[Rollout], staged: QuerySet[StagedRun]) -> Iterator[AnyRun]:
    return merge(rolling, staged, key=began_at, reverse=True)


def _rolling(placement: str, standing: Standing | None) -> QuerySet[Rollout]:
    rows = runs_to_show(placement=placement)
    if standing is Standing.FAILED:
        return rows.none()
    return rows.filter(state=standing) if standing else rows.exclude(state=Rollout.State.RUNNING)


def _staged(placement: str, standing: Standing | None) -> QuerySet[StagedRun]:
    rows = runs_matching(placement=placement).select_related("placement")
    rows = rows.defer("plan", "answer", "strategy", "overrides", "document", "placement__document")
    rows = rows.filter(_STAGED[standing]) if standing else rows.exclude(ended_at=None)
    return rows.annotate(
        strategy_name=KT("document__spec__stagedRolloutStrategyName"),
        stage=KT("answer__slots__stage"),
        done=KT("answer__slots__done"),
        of=KT("answer__slots__clusters"),
    )
