"""What of the rollouts needs somebody: halted runs, removals held back, failures, pauses and stops."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Count, Min, Q

from placements.explain.rollout_reading import answer_of
from placements.explain.rollout_wording import held_back_sentence
from placements.explain.wording import counted
from placements.models import Binding, Placement, Rollout
from placements.rollout.answer import Verdict
from placements.rollout.state import Phase

MOST = 5
_RUNNING = Q(state=Rollout.State.RUNNING)
_HALTED = Q(answer__verdict=Verdict.HALTED)


@dataclass(frozen=True, slots=True)
class Need:
    """One rollout that needs somebody: why, in words, and the run to look at, if there is one."""

    placement: str
    mark: str
    words: str
    run: int | None


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many runs are under way, and how many of them wait for somebody."""

    running: int
    waiting: int


def run_counts() -> RunCounts:
    """Count the runs that are under way."""
    waits = _HALTED | Q(placement__paused_since__isnull=False)
    found = Rollout.objects.filter(_RUNNING).aggregate(all=Count("pk"), waiting=Count("pk", filter=waits))
    return RunCounts(found["all"] - found["waiting"], found["waiting"])


def rollout_needs() -> list[Need]:
    """Give the first of each sort, the worst sort first."""
    return [*_failed(), *_halted(), *_held_back(), *_put_on_hold()]


def _failed() -> Iterator[Need]:
    rows = Binding.objects.filter(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    counts = rows.values("placement__name").annotate(count=Count("pk"), first=Min("cluster_name"))
    for row in counts.order_by("placement__name")[:MOST]:
        more = f" and {counted(row['count'] - 1, 'more cluster')}" if row["count"] > 1 else ""
        name = row["placement__name"]
        yield Need(name, "failed", f"Failed on {row['first']}{more}; it is tried again.", _run_of(name))


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
