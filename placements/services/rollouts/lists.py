"""Rollouts and staged runs in one list, the newest first."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from heapq import merge
from typing import TypeAlias

from django.db.models import Q, QuerySet
from django.db.models.fields.json import KT

from placements.engine.rollout.staged_run import RunStatus
from placements.models import Rollout, StagedRun
from placements.services.rollouts.approvals import with_status
from placements.services.rollouts.queries import runs_to_show
from placements.services.rollouts.staged_queries import runs_matching

AnyRun: TypeAlias = Rollout | StagedRun
_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")
_FIRST = (10**18 - 1, 10**18 - 1)


class RunKind(StrEnum):
    ROLLING = "rolling"
    STAGED = "staged"


class RunListState(StrEnum):
    """The state of a rollout or staged run, as far as a list distinguishes them."""

    RUNNING = "running"
    FINISHED = "finished"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"
    FAILED = "failed"


_STAGED = {
    RunListState.RUNNING: Q(ended_at=None, started_at__isnull=False),
    RunListState.FINISHED: Q(status=RunStatus.SUCCEEDED),
    RunListState.SUPERSEDED: Q(pk__in=()),
    RunListState.STOPPED: Q(status__in=(RunStatus.ABANDONED, RunStatus.STOPPED)),
    RunListState.FAILED: Q(status=RunStatus.FAILED)
    | Q(
        failed__gt=0,
        placement__paused_since=None,
        status__in=(RunStatus.PROGRESSING, RunStatus.STUCK),
    ),
}


@dataclass(frozen=True, slots=True)
class RunsPage:
    """A page of the list, and the cursor of the next page; None at the end."""

    rows: list[AnyRun]
    after: str | None
    before: str | None = None
    """The cursor of the previous page, where that is not the first one."""


def began_at(run: AnyRun) -> datetime:
    return run.started_at if isinstance(run, Rollout) else run.created_at


def newest_run(placement: str) -> AnyRun | None:
    """Return the latest rollout or staged run of the placement that has this name or had it last."""
    rolling = Rollout.objects.filter(placement_name=placement).order_by("-id").first()
    staged = StagedRun.objects.filter(placement_name=placement).order_by("-id").first()
    return max(
        (one for one in (rolling, staged) if one is not None),
        key=began_at,
        default=None,
    )


def latest_runs(*, placement: str, most: int) -> list[AnyRun]:
    rolling = runs_to_show(placement=placement).order_by("-id")[:most]
    staged = _staged(placement, "", None, is_ended=None).order_by("-id")[:most]
    return list(_merge_runs(rolling, staged))[:most]


def active_runs(
    *, placement: str, most: int, text: str = "", kind: RunKind | None = None
) -> list[AnyRun]:
    rolling = _rolling(placement, text, RunListState.RUNNING, kind=kind)
    staged = _staged(placement, text, None, is_ended=False, kind=kind)
    rolling = rolling.order_by("-id")[:most]
    staged = staged.order_by("-id")[:most]
    return list(_merge_runs(rolling, staged))


def runs_page(
    *,
    placement: str,
    state: RunListState | None,
    after: str,
    size: int,
    text: str = "",
    start: int = 0,
    kind: RunKind | None = None,
) -> RunsPage:
    """Return a page of those in a state, or, without, of those that have ended; `start` come before it.

    The cursor holds the last of each kind. An invalid cursor starts at the first page.
    """
    match = _CURSOR.fullmatch(after)
    last = (int(match[1]), int(match[2])) if match else _FIRST
    rolling = _rolling(placement, text, state, kind=kind).order_by("-id")
    staged = _staged(placement, text, state, kind=kind).order_by("-id")
    before = None
    if match and start > size:
        times = [
            (at, pk, False)
            for at, pk in rolling.values_list("started_at", "pk")[: start - size]
        ]
        times += [
            (at, pk, True)
            for at, pk in staged.values_list("created_at", "pk")[: start - size]
        ]
        earlier = sorted(times, reverse=True)[: start - size]
        before = _cursor(((pk, is_staged) for _, pk, is_staged in earlier), _FIRST)
    rolling, staged = rolling.filter(pk__lt=last[0]), staged.filter(pk__lt=last[1])
    rows = list(_merge_runs(rolling[: size + 1], staged[: size + 1]))
    keys = ((run.pk, isinstance(run, StagedRun)) for run in rows[:size])
    after = _cursor(keys, last) if len(rows) > size else ""
    return RunsPage(rows[:size], after or None, before)


def runs_count(
    *,
    placement: str,
    state: RunListState | None,
    text: str = "",
    kind: RunKind | None = None,
) -> int:
    """Return how many are in a state, or, without, have ended."""
    rolling, staged = (
        find(placement, text, state, kind=kind).values_list("pk")
        for find in (_rolling, _staged)
    )
    return rolling.union(staged, all=True).count()


def _cursor(keys: Iterable[tuple[int, bool]], last: tuple[int, int]) -> str:
    """Return the cursor after rows with these keys, true for staged runs, which continue after `last`."""
    least = list(last)
    for pk, is_staged in keys:
        least[is_staged] = min(pk, least[is_staged])
    return f"{least[0]}.{least[1]}"


def _merge_runs(
    rolling: QuerySet[Rollout], staged: QuerySet[StagedRun]
) -> Iterator[AnyRun]:
    return merge(rolling, staged, key=began_at, reverse=True)


def _rolling(
    placement: str,
    text: str,
    state: RunListState | None,
    *,
    kind: RunKind | None = None,
) -> QuerySet[Rollout]:
    rows = runs_to_show(placement=placement, text=text)
    if kind is RunKind.STAGED:
        return rows.none()
    if state is RunListState.FAILED:
        return rows.filter(Q(failed__gt=0, placement__paused_since=None))
    return (
        rows.filter(state=state) if state else rows.exclude(state=Rollout.State.RUNNING)
    )


def _staged(
    placement: str,
    text: str,
    state: RunListState | None,
    *,
    is_ended: bool | None = True,
    kind: RunKind | None = None,
) -> QuerySet[StagedRun]:
    rows = runs_matching(placement=placement).filter(
        placement_name__contains=text.lower()
    )
    rows = rows.none() if kind is RunKind.ROLLING else rows
    rows = rows.select_related("placement")
    rows = rows.defer(
        "plan",
        "sync_result",
        "strategy",
        "overrides",
        "document",
        "placement__document",
    )
    rows = with_status(rows)
    if state:
        rows = rows.filter(_STAGED[state])
    elif is_ended is not None:
        rows = rows.filter(ended_at__isnull=not is_ended)
    return rows.annotate(
        strategy_name=KT("document__spec__stagedRolloutStrategyName"),
        stage=KT("sync_result__concurrency__stage"),
        done=KT("sync_result__concurrency__done"),
        of=KT("sync_result__concurrency__clusters"),
    )
