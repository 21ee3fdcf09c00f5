"""Rollouts that need attention: stalled and stuck ones, blocked removals, failures, pauses, stops."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.db.models import Case, Count, Exists, Min, OuterRef, Q, QuerySet, Subquery, Value, When, Window
from django.db.models.functions import RowNumber

from clusters.models import MemberCluster
from fleetui.apimachinery.words import counted, names_and_more
from placements.engine.rollout.actions import BlockReason, RunPhase
from placements.engine.rollout.staged_run import RunStatus, WaitReason
from placements.engine.rollout.state import FailureKind, Phase
from placements.explain.rollouts import away_sentence, blocked_removals_sentence, result_from_document
from placements.explain.vocabulary import first_names, verb
from placements.models import ApprovalRequest, Binding, Placement, Rollout, StagedRun

MOST = 5
_MOST_READ = 50
"""Results are large; of more stalled rollouts than this, some are listed once others proceed."""
_NO_RESOURCES = "No resources selected: the selectors match no resources on the hub. Nothing is rolled out."
_FAILED, _NO_RESPONSE = "failed", "no-response"
_RUNNING = Q(state=Rollout.State.RUNNING)
_STALLED = Q(verdict=RunPhase.HALTED)
_UNREACHABLE = Q(sync_result__waitingCounts__unreachable__isnull=False)
_BLOCKED_REMOVALS = Q(sync_result__heldBack__staying__isnull=False)
_STARTED = Q(ended_at=None, started_at__isnull=False)
_SORTS_OF_STAGED = ("staged-failed", "stuck", "staged-cut-off", "on-hold")
_LISTED = (RunStatus.STUCK, RunStatus.WAITING, RunStatus.PROGRESSING, RunStatus.STOPPED)


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """A rollout that a user should act on: why, in words, and the rollout to open, if there is one.

    `run` is the number of a rollout, `staged` the name of a staged run. `clusters`: those that it waits for
    and that do not answer.
    """

    sort: str
    placement: str
    kind: str
    words: str
    run: int | None
    staged: str = ""
    clusters: tuple[str, ...] = ()


def waiting_runs() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    """Return the rollouts and the staged runs in progress that stalled or wait for a user."""
    is_paused = Q(placement__paused_since__isnull=False)
    is_pending = Exists(ApprovalRequest.objects.filter(run=OuterRef("pk"), approved_at=None))
    rolling = Rollout.objects.filter(_RUNNING & (_STALLED | is_paused))
    is_idle = Q(status__in=(RunStatus.STOPPED, RunStatus.STUCK))
    staged = StagedRun.objects.filter(_STARTED & (is_idle | is_paused | is_pending))
    return rolling, staged


def stalled_rollouts() -> QuerySet[Rollout]:
    """Return the rollouts in progress in which no cluster can be updated, apart from paused ones."""
    return Rollout.objects.filter(_RUNNING & _STALLED, placement__paused_since=None)


def runs_under_way() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    return Rollout.objects.filter(_RUNNING), StagedRun.objects.filter(_STARTED)


def needs_attention(*, has_runs: bool = True, has_staged: bool = True) -> list[AttentionItem]:
    """Return the first items of each kind, the worst kind first; four queries, however many there are.

    Without rollouts or staged runs, if that is known already, there is a query less for each.
    """
    failed, without_resources, suspended = _items_of_placements()
    rows = Rollout.objects.filter(_RUNNING, _STALLED | _UNREACHABLE | _BLOCKED_REMOVALS)
    rows = rows.order_by("placement_name").select_related("placement")
    rows = rows.only("placement_name", "number", "sync_result", "placement__paused_since")
    items: dict[str, list[AttentionItem]] = {"halted": [], "cut-off": [], "held-back": []}

    def add(sort: str, run: Rollout, sentence: str, away: tuple[str, ...] = ()) -> None:
        item = AttentionItem(sort, run.placement_name, "attention", sentence, run.number, clusters=away)
        items[sort].append(item)

    for run in rows[:_MOST_READ] if has_runs else ():
        result = result_from_document(run.sync_result)
        unreachable = away_sentence(result)
        away = tuple(one.cluster for one in result.blocked if one.reason is BlockReason.UNREACHABLE)
        if result.phase is RunPhase.HALTED:
            if run.placement is None or run.placement.paused_since is None:
                clusters = counted(len(result.blocked), "cluster")
                late = away_sentence(result, BlockReason.NOT_AVAILABLE)
                sentence = f"Rollout {run.number} stalled: {clusters} blocked. {unreachable} {late}"
                add("halted", run, " ".join(sentence.split()), away)
            continue
        if unreachable:
            add("cut-off", run, f"Rollout {run.number}: {unreachable}", away)
        if result.blocked_removals:
            add("held-back", run, blocked_removals_sentence(result.blocked_removals))
    stalled, cut_off, blocked_removals = (each[:MOST] for each in items.values())
    staged_failed, staged = _staged() if has_staged else ([], [])
    in_progress = [*stalled, *cut_off, *staged, *blocked_removals]
    return [*failed, *staged_failed, *without_resources, *in_progress, *suspended]


def _failures() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return the kind of badge, and where something failed or had no answer, for the first placements.

    What failed is first: one cluster without an answer has many placements. And the first such cluster.
    A cluster that the heartbeat rule calls unreachable is listed with the rollout that waits for it. What is
    available on one that answers has no problem, also before its next call.
    """
    has_failed = Q(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    lost = MemberCluster.objects.filter(name=OuterRef("cluster_name")).exclude(verdict="")
    is_available = Q(phase=Phase.AVAILABLE) | Q(phase=Phase.APPLIED, available_status="True")
    has_no_response = Q(failure=FailureKind.UNREACHABLE) & ~is_available & ~Exists(lost)
    rows = Binding.objects.filter(has_failed | has_no_response).annotate(
        sort=Case(When(has_failed, then=Value(_FAILED)), default=Value(_NO_RESPONSE))
    )
    counts = rows.values("placement__full_name", "sort").annotate(
        count=Count("pk"), first=Min("cluster_name")
    )
    failures: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for row in counts.order_by("sort", "placement__full_name")[:MOST]:
        names = names_and_more([row["first"]], 1, count=row["count"])
        words = f"{names} {verb(row['count'], 'is')} not responding."
        failure: tuple[str, str, tuple[str, ...]] = ("attention", words, (row["first"],))
        if row["sort"] == _FAILED:
            failure = ("failed", f"Failed on {names}.", ())
        failures.setdefault(row["placement__full_name"], failure)
    return failures


def _items_of_placements() -> tuple[list[AttentionItem], list[AttentionItem], list[AttentionItem]]:
    """Return the items of failures, and of the first without resources and those paused or stopped."""
    failures = _failures()
    is_suspended = Q(paused_since__isnull=False) | Q(is_stopped=True)
    is_without = Q(selected_count=0, pinned_snapshot=None, deleting_since=None, selection_faults=[])
    has_failed = Q(full_name__in=failures)
    rolling = Rollout.objects.filter(_RUNNING, placement=OuterRef("pk")).order_by("pk")
    staged = StagedRun.objects.filter(_STARTED, placement=OuterRef("pk")).order_by("-pk")
    category = Case(When(has_failed, then=0), When(is_without, then=1), default=2)
    rows: Any = Placement.objects.filter(is_suspended | has_failed | is_without).annotate(
        run_number=Subquery(rolling.values("number")[:1]),
        staged_name=Subquery(staged.values("full_name")[:1]),
        is_without=Case(When(is_without, then=True), default=False),
        place=Window(RowNumber(), partition_by=category, order_by="name"),
    )
    rows = rows.only("full_name", "strategy_type", "paused_since", "paused_by", "is_stopped")
    rows = rows.filter(place__lte=MOST).order_by("name")
    failed, without, suspended = [], [], []
    for row in rows:
        if row.full_name in failures:
            kind, words, away = failures[row.full_name]
            # What failed in a staged placement is retried only by a run.
            is_retried = not row.is_staged or row.staged_name
            retry = "Retrying." if is_retried else "Not retried before the next staged run."
            number = None if row.is_staged else row.run_number
            staged_name = (row.staged_name or "") if row.is_staged else ""
            words = f"{words} {retry}"
            sort = "no-response" if away else "failed"
            failed.append(AttentionItem(sort, row.full_name, kind, words, number, staged_name, away))
        if row.is_without:
            without.append(AttentionItem("no-resources", row.full_name, "attention", _NO_RESOURCES, None))
        if row.paused_since or row.is_stopped:
            words = f"Paused by {row.paused_by}" if row.paused_since else "Stopped"
            words += "; no new updates start."
            suspended.append(AttentionItem("on-hold", row.full_name, "suspended", words, row.run_number))
    return failed, without[:MOST], suspended[:MOST]


def _staged() -> tuple[list[AttentionItem], list[AttentionItem]]:
    """Return the items of staged runs that failed, and of those that are stuck, wait for clusters or stopped.

    A failed run is listed until there is a newer one of its placement.
    """
    newer = StagedRun.objects.filter(placement=OuterRef("placement"), pk__gt=OuterRef("pk"))
    has_failed = Q(~Exists(newer), status=RunStatus.FAILED, placement__isnull=False)
    rows = StagedRun.objects.filter(has_failed | _STARTED & Q(status__in=_LISTED))
    group = Case(When(status=RunStatus.FAILED, then=0), default=1)
    order = (Case(When(status=RunStatus.STUCK, then=0), default=1), "placement_name", "pk")
    rows = rows.annotate(place=Window(RowNumber(), partition_by=group, order_by=order))
    rows = rows.filter(place__lte=_MOST_READ).order_by(*order)
    items: dict[str, list[AttentionItem]] = {one: [] for one in _SORTS_OF_STAGED}
    for run in rows.only("full_name", "placement_name", "status", "sync_result"):
        waits, late = run.sync_result.get("waits", ()), run.sync_result.get("stuck")
        names = [name for one in waits if one["reason"] == WaitReason.UNREACHABLE for name in one["names"]]
        if run.status == RunStatus.FAILED:
            sort, kind, words = "staged-failed", "failed", "failed. Clusters keep their current revision."
        elif run.status == RunStatus.STOPPED:
            sort, kind, words = "on-hold", "suspended", "is stopped; no new updates start."
        elif late:
            words = f"is stuck: {counted(len(late), 'cluster')} not updated within 5m."
            sort, kind, names = "stuck", "attention", []
        elif names:
            words = f"waits for unreachable clusters: {first_names(names)}."
            sort, kind = "staged-cut-off", "attention"
        else:
            continue
        words = f"Staged run {run.full_name} {words}"
        item = AttentionItem(sort, run.placement_name, kind, words, None, run.full_name, tuple(names))
        items[sort].append(item)
    failed, *others = (each[:MOST] for each in items.values())
    return failed, list(chain.from_iterable(others))
