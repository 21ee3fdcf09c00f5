"""What of the rollouts needs somebody: halted and stuck runs, removals held back, failures, pauses, stops."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Case, Count, Exists, Min, OuterRef, Q, QuerySet, Subquery, Value, When

from clusters.models import MemberCluster
from placements.explain.rollout_reading import answer_of
from placements.explain.rollout_wording import held_back_sentence, listed, unreachable_sentence
from placements.explain.wording import counted
from placements.models import ApprovalRequest, Binding, Placement, Rollout, StagedRun
from placements.rollout.answer import Answer, Verdict
from placements.rollout.failures import FailureKind
from placements.rollout.staged_facts import RunStatus, WaitFor
from placements.rollout.state import Phase

MOST = 5
_MOST_READ = 50
"""Answers are large; of more runs than this that do not go on, some are told of once others do."""
_FAILED, _SILENT = "Failed on", "No answer from"
_RUNNING = Q(state=Rollout.State.RUNNING)
_HALTED = Q(answer__verdict=Verdict.HALTED)
_CUT_OFF = Q(answer__waitingCounts__unreachable__isnull=False)
_HELD_BACK = Q(answer__heldBack__staying__isnull=False)
_BEGUN = Q(ended_at=None, started_at__isnull=False)


@dataclass(frozen=True, slots=True)
class Need:
    """One rollout that needs somebody: why, in words, and the run to look at, if there is one.

    `run` is the number of a run, `staged` the name of a staged one.
    """

    sort: str
    placement: str
    mark: str
    words: str
    run: int | None
    staged: str = ""

    @property
    def key(self) -> str:
        """Give what this one has alone among those that are told at once."""
        return f"{self.sort}-{self.staged or self.placement}"


class Failures(NamedTuple):
    """What went wrong with a placement on which clusters: a mark, and words."""

    mark: str
    words: str


def waiting_count() -> int:
    """Count the runs of both sorts that are under way and wait for somebody."""
    rolling, staged = waiting_runs()
    return rolling.values_list("pk").union(staged.values_list("pk"), all=True).count()


def waiting_runs() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    """Give the runs of both sorts that are under way and wait for somebody."""
    is_paused = Q(placement__paused_since__isnull=False)
    asks = Exists(ApprovalRequest.objects.filter(run=OuterRef("pk"), approved_at=None))
    rolling = Rollout.objects.filter(_RUNNING & (_HALTED | is_paused))
    staged = StagedRun.objects.filter(_BEGUN & (Q(status=RunStatus.STOPPED) | is_paused | asks))
    return rolling, staged


def runs_under_way() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    """Give the runs of both sorts that are under way."""
    return Rollout.objects.filter(_RUNNING), StagedRun.objects.filter(_BEGUN)


def rollout_needs() -> list[Need]:
    """Give the first of each sort, the worst sort first; five queries, however many there are."""
    failed, on_hold = _concerned(_failures())
    staged, rolling = _staged_under_way(), _rolling_under_way()
    return [
        *failed,
        *_staged_failed(),
        *_halted(rolling),
        *_cut_off(rolling),
        *_stuck(staged),
        *_staged_cut_off(staged),
        *_held_back(rolling),
        *on_hold,
    ]


def _failures() -> dict[str, Failures]:
    """Say of the first placements of which something failed, or had no answer, on which clusters.

    A cluster that the heartbeat rule calls out of reach is told of with the run that waits for it.
    """
    has_failed = Q(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
    lost = MemberCluster.objects.filter(name=OuterRef("cluster_name")).exclude(verdict="")
    is_silent = Q(failure=FailureKind.UNREACHABLE) & ~Exists(lost)
    rows = Binding.objects.filter(has_failed | is_silent).annotate(
        sort=Case(When(has_failed, then=Value(_FAILED)), default=Value(_SILENT))
    )
    counts = rows.values("placement__name", "sort").annotate(count=Count("pk"), first=Min("cluster_name"))
    found: dict[str, Failures] = {}
    for row in counts.order_by("placement__name", "sort")[:MOST]:
        more = f" and {counted(row['count'] - 1, 'more cluster')}" if row["count"] > 1 else ""
        mark = "failed" if row["sort"] == _FAILED else "attention"
        found.setdefault(row["placement__name"], Failures(mark, f"{row['sort']} {row['first']}{more};"))
    return found


def _concerned(failures: Mapping[str, Failures]) -> tuple[list[Need], list[Need]]:
    """Give the needs of the placements with failures, and of the first that are on hold."""
    is_held = Q(paused_since__isnull=False) | Q(is_stopped=True)
    has_failed = Q(name__in=failures)
    rolling = Rollout.objects.filter(_RUNNING, placement=OuterRef("pk")).order_by("pk")
    staged = StagedRun.objects.filter(_BEGUN, placement=OuterRef("pk")).order_by("-pk")
    rows = Placement.objects.filter(is_held | has_failed).annotate(
        run_number=Subquery(rolling.values("number")[:1]),
        staged_name=Subquery(staged.values("name")[:1]),
        comes_first=Case(When(has_failed, then=0), default=1),
    )
    rows = rows.only("name", "document", "paused_since", "paused_by", "is_stopped")
    found = sorted(rows.order_by("comes_first", "name")[: len(failures) + MOST], key=lambda row: row.name)
    held = [row for row in found if row.paused_since or row.is_stopped]
    failed = [_failed(row, failures[row.name]) for row in found if row.name in failures]
    return failed, [_put_on_hold(row) for row in held[:MOST]]


def _failed(row: Any, said: Failures) -> Need:
    """Say whether what failed is tried again: of a staged placement only a run does that."""
    if not row.is_staged:
        return Need("failed", row.name, said.mark, f"{said.words} it is tried again.", row.run_number)
    again = "it is tried again." if row.staged_name else "nobody tries again before the next staged run."
    return Need("failed", row.name, said.mark, f"{said.words} {again}", None, row.staged_name or "")


def _put_on_hold(row: Any) -> Need:
    words = f"Paused by {row.paused_by}; nothing starts." if row.paused_since else "Stopped; nothing starts."
    return Need("on-hold", row.name, "blocked", words, row.run_number)


def _staged_failed() -> Iterator[Need]:
    """Give the runs that could not go on, until there is a newer one of their placement."""
    newer = StagedRun.objects.filter(placement=OuterRef("placement"), pk__gt=OuterRef("pk"))
    rows = StagedRun.objects.filter(~Exists(newer), status=RunStatus.FAILED, placement__isnull=False)
    for run in rows.order_by("-pk").only("name", "placement_name")[:MOST]:
        words = f"Staged run {run.name} has failed; the clusters stay as they are."
        yield Need("staged-failed", run.placement_name, "failed", words, None, run.name)


def _staged_under_way() -> list[StagedRun]:
    """Give the staged runs that may have come to a cluster which does not let them go on."""
    rows = StagedRun.objects.filter(_BEGUN, status__in=_AT_CLUSTERS)
    rows = rows.order_by(Case(When(status=RunStatus.STUCK, then=0), default=1), "placement_name", "pk")
    return list(rows.only("name", "placement_name", "status", "answer")[:_MOST_READ])


_AT_CLUSTERS = (RunStatus.STUCK, RunStatus.WAITING, RunStatus.PROGRESSING)


def _stuck(runs: Iterable[StagedRun]) -> list[Need]:
    stuck = [run for run in runs if run.status == RunStatus.STUCK]
    return [
        Need(
            "stuck",
            run.placement_name,
            "attention",
            f"Staged run {run.name} is stuck: {counted(len(run.answer.get('stuck', ())), 'cluster')}"
            " did not get there within 5 minutes.",
            None,
            run.name,
        )
        for run in stuck[:MOST]
    ]


def _staged_cut_off(runs: Iterable[StagedRun]) -> list[Need]:
    """Give the staged runs that wait for clusters out of reach; what is stuck is told of as stuck."""
    waits = [(run, _out_of_reach(run)) for run in runs if run.status != RunStatus.STUCK]
    return [
        Need(
            "staged-cut-off",
            run.placement_name,
            "attention",
            f"Staged run {run.name} waits for {listed(names)}: out of reach.",
            None,
            run.name,
        )
        for run, names in [one for one in waits if one[1]][:MOST]
    ]


def _out_of_reach(run: StagedRun) -> list[str]:
    waits = run.answer.get("waits", ())
    return [name for one in waits if one["what"] == WaitFor.UNREACHABLE for name in one["names"]]


def _rolling_under_way() -> list[tuple[Rollout, Answer]]:
    """Give the running rolling updates that do not go on by themselves, with their answers."""
    rows = Rollout.objects.filter(_RUNNING, _HALTED | _CUT_OFF | _HELD_BACK).order_by("placement_name")
    rows = rows.select_related("placement").only(
        "placement_name", "number", "answer", "placement__paused_since"
    )
    return [(run, answer_of(run.answer)) for run in rows[:_MOST_READ]]


def _halted(runs: Iterable[tuple[Rollout, Answer]]) -> list[Need]:
    found = [one for one in runs if one[1].verdict is Verdict.HALTED and not _is_paused(one[0])]
    return [_halt(run, answer) for run, answer in found[:MOST]]


def _is_paused(run: Rollout) -> bool:
    return run.placement is not None and run.placement.paused_since is not None


def _halt(run: Rollout, answer: Answer) -> Need:
    waiting = counted(len(answer.waiting), "cluster")
    verb = "waits" if len(answer.waiting) == 1 else "wait"
    cut_off = unreachable_sentence(answer)
    words = f"Run {run.number} has halted: nothing goes on by itself, {waiting} {verb}."
    words += f" {cut_off}." if cut_off else ""
    return Need("halted", run.placement_name, "attention", words, run.number)


def _cut_off(runs: Iterable[tuple[Rollout, Answer]]) -> list[Need]:
    """Give the runs that wait for clusters out of reach; one that has halted names them itself."""
    going_on = [one for one in runs if one[1].verdict is not Verdict.HALTED]
    told = [(run, unreachable_sentence(answer)) for run, answer in going_on]
    return [
        Need("cut-off", run.placement_name, "attention", f"Run {run.number} waits. {words}.", run.number)
        for run, words in [one for one in told if one[1]][:MOST]
    ]


def _held_back(runs: Iterable[tuple[Rollout, Answer]]) -> list[Need]:
    held = [(run, answer.held_back) for run, answer in runs if answer.verdict is not Verdict.HALTED]
    told = [(run, f"Removals are held back: {held_back_sentence(one)}.") for run, one in held if one]
    return [
        Need("held-back", run.placement_name, "attention", words, run.number) for run, words in told[:MOST]
    ]
