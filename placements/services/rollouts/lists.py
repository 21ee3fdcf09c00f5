"""Runs, rolling and staged, in one list, the newest first."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from heapq import merge
from operator import attrgetter
from typing import Any

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.fields.json import KT

from fleetui.pagination import Page
from placements.engine.rollout.staged_run import RunStatus
from placements.models import (
    Placement,
    Rollout,
    RolloutSample,
    Run,
    RunKind,
    StagedRun,
)
from placements.services.rollouts.queries import (
    IN_PROGRESS,
    IS_REPLACED,
    runs_matching,
    with_status,
)

_CURSOR = re.compile(r"(\d{1,18})\.(\d{1,18})")
_FIRST = (10**18 - 1, 10**18 - 1)
_MODELS: tuple[type[Run], ...] = (Rollout, StagedRun)


class RunListState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    SUPERSEDED = "superseded"
    STOPPED = "stopped"
    FAILED = "failed"


_HAS_FAILED = Q(failed__gt=0, placement__paused_since=None)
_STATES: dict[RunKind, dict[RunListState, Q]] = {
    RunKind.ROLLING: {
        **{state: Q(state=state) for state in RunListState},
        RunListState.FAILED: _HAS_FAILED,
    },
    RunKind.STAGED: {
        RunListState.RUNNING: IN_PROGRESS,
        RunListState.FINISHED: Q(status=RunStatus.SUCCEEDED),
        RunListState.SUPERSEDED: Q(pk__in=()),
        RunListState.STOPPED: Q(status=RunStatus.ABANDONED),
        RunListState.FAILED: Q(status=RunStatus.FAILED)
        | (_HAS_FAILED & Q(status__in=(RunStatus.PROGRESSING, RunStatus.STUCK))),
    },
}
_VALUES: dict[RunKind, dict[str, Any]] = {
    RunKind.ROLLING: {
        "done": KT("sync_result__budgets__updates__ready"),
        "of": KT("sync_result__budgets__updates__number"),
        "is_replaced": IS_REPLACED,
    },
    RunKind.STAGED: {
        "stage": KT("sync_result__concurrency__stage"),
        "strategy_name": KT("document__spec__stagedRolloutStrategyName"),
        "is_replaced": Value(value=False),
    },
}


def newest_run(placement: str) -> Run | None:
    """Return the latest run of the placement that has this name; without one, of those that had it."""
    own = Placement.objects.filter(full_name=placement).first()
    newest = (
        model.objects.filter(Q(placement=own), placement_name=placement)
        .order_by("-id")
        .first()
        for model in _MODELS
    )
    present = [run for run in newest if run is not None]
    return max(present, key=attrgetter("began_at"), default=None)


def latest_runs(*, placement: str, most: int, kind: RunKind | None = None) -> list[Run]:
    lists = _lists(placement, state=None, kind=kind, is_ended=None)
    return list(merge_runs(rows[:most] for rows in lists))[:most]


def active_runs(
    *,
    placement: str,
    most: int,
    text: str = "",
    kind: RunKind | None = None,
) -> list[Run]:
    lists = _lists(placement, text, state=None, kind=kind, is_ended=False)
    return list(merge_runs(rows[:most] for rows in lists))


def runs_page(
    *,
    placement: str,
    state: RunListState | None,
    after: str,
    size: int,
    text: str = "",
    start: int = 0,
    kind: RunKind | None = None,
) -> Page[Run]:
    """Return a page of those in a state, or, without, of those that have ended; `start` come before it.

    The cursor holds the last of each kind. An invalid cursor starts at the first page.
    """
    match = _CURSOR.fullmatch(after)
    last = (int(match[1]), int(match[2])) if match else _FIRST
    lists = _lists(placement, text, state=state, kind=kind)
    before = None
    if match and start > size:
        times = [
            (at, at_kind, pk)
            for at_kind, rows in enumerate(lists)
            for at, pk in rows.values_list(_MODELS[at_kind].BEGAN, "pk")[: start - size]
        ]
        earlier = sorted(times, reverse=True)[: start - size]
        before = _cursor(((pk, at_kind) for _, at_kind, pk in earlier), _FIRST)
    parts = zip(lists, last, strict=True)
    rows = list(merge_runs(part.filter(pk__lt=key)[: size + 1] for part, key in parts))
    keys = ((run.pk, _MODELS.index(type(run))) for run in rows[:size])
    after = _cursor(keys, last) if len(rows) > size else ""
    return Page(rows[:size], after or None, before)


def runs_count(
    *,
    placement: str,
    state: RunListState | None,
    text: str = "",
    kind: RunKind | None = None,
) -> int:
    """Return how many are in a state, or, without, have ended."""
    lists = _lists(placement, text, state=state, kind=kind)
    rolling, staged = (rows.order_by().values_list("pk") for rows in lists)
    return rolling.union(staged, all=True).count()


def merge_runs(lists: Iterable[Iterable[Run]]) -> Iterator[Run]:
    return merge(*lists, key=attrgetter("began_at"), reverse=True)


def _cursor(keys: Iterable[tuple[int, int]], last: Sequence[int]) -> str:
    """Return the cursor after rows with these keys and the place of their kind, continuing after `last`."""
    least = list(last)
    for pk, at_kind in keys:
        least[at_kind] = min(pk, least[at_kind])
    return f"{least[0]}.{least[1]}"


def _lists(
    placement: str,
    text: str = "",
    *,
    state: RunListState | None,
    kind: RunKind | None = None,
    is_ended: bool | None = True,
) -> list[QuerySet[Any]]:
    """Return the runs of each kind, the newest first, with the values of a list: `done` of `of` clusters."""
    lists = []
    for model in _MODELS:
        rows: QuerySet[Any]
        rows = runs_matching(model, placement=placement, text=text)
        rows = rows.select_related("placement").defer(
            *model.LONG_COLUMNS, "placement__document"
        )
        if kind not in (None, model.kind):
            rows = rows.none()
        rows = with_status(rows).annotate(**_VALUES[model.kind])
        if model is StagedRun:
            samples = RolloutSample.objects.filter(staged_run=OuterRef("pk"))
            last = samples.order_by("-pk").annotate(available=F("old") + F("new"))
            rows = rows.annotate(
                done=Subquery(last.values("available")[:1]),
                of=Subquery(last.values("number")[:1]),
            )
        if state:
            rows = rows.filter(_STATES[model.kind][state])
        elif is_ended is not None:
            rows = rows.filter(ended_at__isnull=not is_ended)
        lists.append(rows.order_by("-id"))
    return lists
