"""Runs of rolling updates: lists, one of them, and what its answer says in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Cast

from fleetui.models import Event
from fleetui.prepared import GIVEN, Prepared
from placements.explain.rollout_reading import answer_of
from placements.explain.rollout_wording import waiting_sentence
from placements.models import Binding, ClusterUpdate, Placement, Rollout, StagedRun
from placements.rollout.answer import Answer


class UnknownRunError(LookupError):
    """There is no such run."""

    def __init__(self, placement: str, number: int) -> None:
        super().__init__(f"there is no run {number} of a placement {placement[:63]!r}")


def runs_matching(*, placement: str = "", state: str = "") -> QuerySet[Rollout]:
    """Give runs that match, without what is large in them; unordered."""
    rows = Rollout.objects.defer("answer")
    rows = rows.filter(placement_name=placement) if placement else rows
    return rows.filter(state=state) if state else rows


def runs_to_show(*, placement: str = "", state: str = "") -> QuerySet[Rollout]:
    """Give the same with what a list says of them: `verdict`, `ready` of `number` clusters; unordered."""
    rows = runs_matching(placement=placement, state=state).select_related("placement")
    return rows.defer("answer", "waves", "placement__document").annotate(
        verdict=KT("answer__verdict"),
        ready=KT("answer__budgets__updates__ready"),
        of=KT("answer__budgets__updates__number"),
    )


def events_of(run: Rollout) -> QuerySet[Event]:
    """Give what happened to a run, and what people did with its placement meanwhile; unordered."""
    meanwhile = Q(kind="placement", name=run.placement_name, at__gte=run.started_at)
    meanwhile &= Q(at__lte=run.ended_at) if run.ended_at else Q()
    return Event.objects.filter(Q(kind="rollout", name=f"{run.placement_name}/{run.number}") | meanwhile)


def running_count() -> int:
    """Count the runs of both sorts that are under way."""
    staged = StagedRun.objects.filter(ended_at=None, started_at__isnull=False)
    rolling = Rollout.objects.filter(state=Rollout.State.RUNNING)
    return rolling.values_list("pk").union(staged.values_list("pk"), all=True).count()


def run_named(placement: str, number: int) -> Rollout:
    """Give a run; of two placements with one name, one after the other, the later. Raises UnknownRunError."""
    rows = Rollout.objects.filter(placement_name=placement, number=number).select_related("placement")
    found = rows.order_by("-pk").first()
    if found is None:
        raise UnknownRunError(placement, number)
    return found


def latest_run(placement: Placement) -> Rollout | None:
    """Give the run that is under way, or the last one."""
    return Rollout.objects.filter(placement=placement).order_by("-number").first()


def pulse_of(placement: str, number: int) -> str:
    """Give what moves with everything that happens to a run, without reading the run. Empty without one."""
    found = _RUN_PULSE.first(placement, str(number)) if number <= _MOST_RUNS else None
    return f"{found[0]}.{found[1] or 0}" if found else ""


def _moving_run() -> QuerySet[Any, Any]:
    rows = Rollout.objects.filter(placement_name=GIVEN)
    rows = rows.filter(number=Cast(Value(GIVEN), IntegerField())).order_by("-pk")
    return rows.values_list("changes", "placement__revision")


_RUN_PULSE = Prepared(_moving_run)
_MOST_RUNS = 2**31 - 1
"""No column holds a larger number; PostgreSQL would refuse the question."""


def placement_pulse(name: str) -> str:
    """Give what moves with everything that the page of a placement follows; empty without one."""
    found = _PULSE.first(name)
    return ".".join(str(one) for one in found) if found else ""


def _moving() -> QuerySet[Any, Any]:
    runs = Rollout.objects.filter(placement=OuterRef("pk")).order_by("-number")
    staged = StagedRun.objects.filter(placement=OuterRef("pk")).order_by("-pk")
    told: dict[str, Any] = {
        "run": Subquery(runs.values("number")[:1]),
        "run_changes": Subquery(runs.values("changes")[:1]),
        "staged": Subquery(staged.values("pk")[:1]),
        "staged_changes": Subquery(staged.values("changes")[:1]),
        "wants_look": Case(When(advance_answered__lt=F("advance_asked"), then=1), default=0),
    }
    rows = Placement.objects.filter(name=GIVEN).annotate(**told).order_by("pk")
    return rows.values_list("revision", "asked", "answered", "decisions_made", *told)


_PULSE = Prepared(_moving)


def updates_of(run: Rollout) -> QuerySet[ClusterUpdate]:
    """Give what was started in a run; unordered."""
    return ClusterUpdate.objects.filter(rollout=run)


def version_names(run: Rollout) -> Mapping[str, str]:
    """Call the versions that the clusters of a run have by the snapshots of their resources: `r4`."""
    rows = Binding.objects.filter(placement=run.placement_id, resource_snapshot__isnull=False)
    pairs = (
        rows.values_list("running_version", "resource_snapshot__number")
        .distinct()
        .order_by("resource_snapshot__number")
    )
    names = {version: f"r{number}" for version, number in pairs}
    return names if run.resource_number is None else {**names, run.version: f"r{run.resource_number}"}


@dataclass(frozen=True)
class Said:
    """What a run that is under way may do next, and what people call the versions in it."""

    answer: Answer | None
    names: Mapping[str, str]


def said_of(run: Rollout) -> Said:
    """Read what the last look at a run found; nothing once it has ended."""
    names = version_names(run)
    if run.state != Rollout.State.RUNNING or not run.answer:
        return Said(None, names)
    return Said(answer_of(run.answer, names), names)


def waiting_words(run: Rollout | None) -> dict[str, str]:
    """Say why each cluster of a run waits."""
    answer = said_of(run).answer if run else None
    return {one.cluster: waiting_sentence(one, answer) for one in answer.waiting} if answer else {}
