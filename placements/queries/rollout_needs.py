"""What of the rollouts needs somebody: halted and stuck runs, removals held back, failures, pauses, stops."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Count, Exists, Min, OuterRef, Q

from placements.explain.rollout_reading import answer_of
from placements.explain.rollout_wording import held_back_sentence
from placements.explain.wording import counted
from placements.models import ApprovalRequest, Binding, Placement, Rollout, StagedRun
from placements.rollout.answer import Verdict
from placements.rollout.staged_facts import RunStatus
from placements.rollout.state import Phase

MOST = 5
_RUNNING = Q(state=Rollout.State.RUNNING)
_HALTED = Q(answer__verdict=Verdict.HALTED)
_BEGUN = Q(ended_at=None, started_at__isnull=False)


@dataclass(frozen=True, slots=True)
class Need:
    """One rollout that needs somebody: why, in words, and the run to look at, if there is one.

    `run` is the number of a run, `staged` the name of a staged one.
    """

    placement: str
    mark: str
    words: str
    run: int | None
    staged: str = ""


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs are under way, and how many of them wait for somebody."""

    running: int
    waiting: int


def run_counts() -> RunCounts:
    """Count the runs of both sorts that are under way."""
    is_paused = Q(placement__paused_since__isnull=False)
    asks = Exists(ApprovalRequest.objects.filter(run=OuterRef("pk"), approved_at=None))
    rolling = Rollout.objects.filter(_RUNNING)
    waiting = rolling.filter(_HALTED | is_paused).count()
    staged = StagedRun.objects.filter(_BEGUN)
    staged_waiting = staged.filter(Q(status=RunStatus.STOPPED) | is_paused | asks).count()
    both = waiting + staged_waiting
    return RunCounts(rolling.count() + staged.count() - both, both)


def rollout_needs() -> list[Need]:
    """Give the first of each sort, the worst sort first."""
    return [*_failed(), *_staged_failed(), *_halted(), *_stuck(), *_held_back(), *_put_on_hold()]


def _failed() -> Iterator[Need]:
    rows = Binding.objects.filter(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    counts = rows.values("placement__name").annotate(count=Count("pk"), first=Min("cluster_name"))
    for row in counts.order_by("placement__name")[:MOST]:
        more = f" and {counted(row['count'] - 1, 'more cluster')}" if row["count"] > 1 else ""
        yield _failed_need(row["placement__name"], f"Failed on {row['first']}{more};")


def _failed_need(name: str, words: str) -> Need:
    """Say whether what failed is tried again: of a staged placement only a run does that."""
    if not Placement.objects.get(name=name).is_staged:
        return Need(name, "failed", f"{words} it is tried again.", _run_of(name))
    run = StagedRun.objects.filter(_BEGUN, placement__name=name).order_by("-pk").first()
    if run is None:
        return Need(name, "failed", f"{words} nobody tries again before the next staged run.", None)
    return Need(name, "failed", f"{words} it is tried again.", None, run.name)


def _staged_failed() -> Iterator[Need]:
    """Give the runs that could not go on, until there is a newer one of their placement."""
    newer = StagedRun.objects.filter(placement=OuterRef("placement"), pk__gt=OuterRef("pk"))
    rows = StagedRun.objects.filter(~Exists(newer), status=RunStatus.FAILED, placement__isnull=False)
    for run in rows.order_by("-pk").only("name", "placement_name")[:MOST]:
        words = f"Staged run {run.name} has failed; the clusters stay as they are."
        yield Need(run.placement_name, "failed", words, None, run.name)


def _stuck() -> Iterator[Need]:
    rows = StagedRun.objects.filter(_BEGUN, status=RunStatus.STUCK).order_by("placement_name", "pk")
    for run in rows.only("name", "placement_name", "answer")[:MOST]:
        clusters = counted(len(run.answer.get("stuck", ())), "cluster")
        words = f"Staged run {run.name} is stuck: {clusters} did not get there within 5 minutes."
        yield Need(run.placement_name, "attention", words, None, run.name)


def _run_of(name: str) -> int | None:
    rows = Rollout.objects.filter(_RUNNING, placement_name=name)
    return rows.values_list("number", flat=True).first()


def _halted() -> Iterator[Need]:
    for run in _listed(_HALTED & Q(placement__paused_since=None)):
        answer = answer_of(run.answer)
        waiting = counted(len(answer.waiting), "cluster")
        words = f"Run {run.number} has halted: nothing goes on by itself, {waiting} wait"
        yield Need(run.placement_name, "attention", f"{words}{'s' * (len(answer.waiting) == 1)}.", run.number)


def _held_back() -> Iterator[Need]:
    for run in _listed(Q(answer__heldBack__staying__isnull=False) & ~_HALTED):
        held = answer_of(run.answer).held_back
        if held:
            words = f"Removals are held back: {held_back_sentence(held)}."
            yield Need(run.placement_name, "attention", words, run.number)


def _listed(wanted: Q) -> list[Rollout]:
    return list(Rollout.objects.filter(_RUNNING & wanted).order_by("placement_name")[:MOST])


def _put_on_hold() -> Iterator[Need]:
    rows = Placement.objects.filter(Q(paused_since__isnull=False) | Q(is_stopped=True)).order_by("name")
    for row in rows.only("name", "paused_since", "paused_by", "is_stopped")[:MOST]:
        words = (
            f"Paused by {row.paused_by}; nothing starts." if row.paused_since else "Stopped; nothing starts."
        )
        yield Need(row.name, "blocked", words, _run_of(row.name))
