"""One look at a drain: where each placement of the cluster is, and whom to evict next."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db import transaction

from clusters.models import MemberCluster
from placements.models import Binding, Drain, DrainStep
from placements.operations.rollouts.evictions import Judged, carry_out, judge
from placements.queries.disruptions import numbers_facts
from placements.queries.drain_impact import has_begun_run, is_held, why_stays
from placements.rollout.disruption import Executed, Invalid, Why, WhyStays
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.spec import parse_placement
from placements.standing import Standing, is_staged

TRY_AGAIN = timedelta(seconds=10)
MOST_TRIED = 50
"""How many evictions one look judges at most: each reads the whole placement."""
_SILENT = (EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)


def take_steps(drain: Drain, *, now: datetime) -> None:
    """Note how far every placement is, then evict as many as the pace allows, in the order asked for."""
    steps = note_steps(drain, now=now)
    room = drain.at_once - _under_way(drain, steps)
    due = [step for step in steps if step.state in _TRIED and not (step.try_at and step.try_at > now)]
    for step in due[:MOST_TRIED]:
        if room <= 0:
            return
        if not _is_moving_elsewhere(drain, step.placement_name):
            room -= _try(drain, step, now=now)


def note_steps(drain: Drain, *, now: datetime) -> list[DrainStep]:
    """Note how far every placement is; give them in the order in which they go."""
    bindings = _bindings(drain.cluster_name)
    steps = _steps(drain, bindings, now=now)
    for step in steps:
        _note(step, bindings.get(step.placement_name), now=now)
    return steps


_TRIED = (DrainStep.State.WAITING, DrainStep.State.BLOCKED)


def _bindings(cluster: str) -> dict[str, Binding]:
    rows = Binding.objects.filter(cluster_name=cluster).select_related("placement")
    return {row.placement.name: row for row in rows}


def _steps(drain: Drain, names: Collection[str], *, now: datetime) -> list[DrainStep]:
    """Give the step of every placement that is on the cluster, or was when the drain looked before."""
    known = set(drain.steps.values_list("placement_name", flat=True))
    missing = [
        DrainStep(drain=drain, placement_name=name, changed_at=now) for name in names if name not in known
    ]
    DrainStep.objects.bulk_create(missing, batch_size=500, ignore_conflicts=True)
    place = {name: at for at, name in enumerate(drain.first)}
    last = len(place)
    return sorted(
        drain.steps.all(), key=lambda step: (place.get(step.placement_name, last), step.placement_name)
    )


def _note(step: DrainStep, binding: Binding | None, *, now: datetime) -> None:
    """Bring a step up to what the binding says; what it cannot say, an eviction will."""
    if binding is None:
        _put(step, DrainStep.State.GONE, "", now=now)
    elif binding.placement.deleting_since:
        _put(step, DrainStep.State.LEAVING, Why.BEING_DELETED, now=now)
    elif binding.phase in (Phase.REMOVING, Phase.REMOVE_FAILED):
        _put(step, DrainStep.State.LEAVING, Why.LEAVING, now=now)
    elif binding.state == BindingState.UNSCHEDULED and is_staged(binding.placement):
        _put(step, DrainStep.State.NEXT_RUN, WhyStays.NEXT_RUN, now=now)
    elif stays := why_stays(parse_placement(binding.placement.document).spec.policy):
        _put(step, DrainStep.State.STAYS, stays, now=now)
    elif step.state not in _TRIED:
        _put(step, DrainStep.State.WAITING, "", now=now)


def _put(
    step: DrainStep, state: DrainStep.State, why: str, *, now: datetime, judged: Judged | None = None
) -> None:
    """Write a step down where it is news."""
    verdict = judged.verdict if judged else None
    numbers = None if verdict is None or isinstance(verdict, Invalid) else numbers_facts(verdict.numbers)
    try_at = now + TRY_AGAIN if state == DrainStep.State.BLOCKED else None
    if (step.state, step.why, step.numbers, step.try_at) != (state, why, numbers, try_at):
        is_news = step.state != state
        step.state, step.why, step.numbers, step.try_at = state, why, numbers, try_at
        step.changed_at = now if is_news else step.changed_at
        step.save(update_fields=["state", "why", "numbers", "try_at", "changed_at"])


def _under_way(drain: Drain, steps: Iterable[DrainStep]) -> int:
    """Count the evictions to wait for: on a cluster out of reach none, as nothing is known to end there."""
    if MemberCluster.objects.filter(name=drain.cluster_name, verdict__in=_SILENT).exists():
        return 0
    leaving = [step for step in steps if step.state == DrainStep.State.LEAVING]
    return sum(step.why == Why.LEAVING for step in leaving)


def _is_moving_elsewhere(drain: Drain, placement: str) -> bool:
    """Tell whether as many drains as may are evicting this placement at the moment."""
    others = DrainStep.objects.filter(
        drain__state=Drain.State.RUNNING, placement_name=placement, state=DrainStep.State.LEAVING
    )
    return others.exclude(drain=drain).count() >= drain.per_placement


@transaction.atomic
def _try(drain: Drain, step: DrainStep, *, now: datetime) -> int:
    """Evict one placement; tell whether an eviction is under way now. A refusal is written down once.

    The rows are locked, and whatever the look went by is read again: others act, and look, meanwhile.
    """
    if not _may_go_on(drain, step):
        return 0
    judged = _or_planned(judge(step.placement_name, drain.cluster_name, now=now))
    standing, verdict = judged.standing, judged.verdict
    if standing is None or _is_moving_elsewhere(drain, step.placement_name):
        return 0
    obstacle = _obstacle(standing)
    if obstacle:
        _put(step, DrainStep.State.BLOCKED, obstacle, now=now)
        return 0
    is_executed = isinstance(verdict, Executed)
    if is_executed or verdict.why != step.why:
        carry_out(judged, by=None, now=now, drain=drain, removes=not standing.is_staged)
    if not is_executed:
        _put(step, DrainStep.State.BLOCKED, verdict.why, now=now, judged=judged)
        return 0
    if standing.is_staged:
        _put(step, DrainStep.State.NEXT_RUN, WhyStays.NEXT_RUN, now=now)
        return 0
    _put(step, DrainStep.State.LEAVING, Why.LEAVING, now=now)
    return 1


def _may_go_on(drain: Drain, step: DrainStep) -> bool:
    """Lock a drain; tell whether nobody cancelled it, nor took its room or this step, meanwhile."""
    row = Drain.objects.select_for_update().filter(pk=drain.pk, state=Drain.State.RUNNING).first()
    if row is None or not row.steps.filter(pk=step.pk, state__in=_TRIED).exists():
        return False
    return _under_way(row, row.steps.all()) < row.at_once


def _obstacle(standing: Standing) -> WhyStays | None:
    """Say what of the placement itself is in the way; somebody has to clear it, or a staged run to end."""
    if is_held(standing.placement):
        return WhyStays.HELD
    is_run_begun = standing.is_staged and has_begun_run(standing.placement)
    return WhyStays.STAGED_RUN if is_run_begun else None


def _or_planned(judged: Judged) -> Judged:
    """Let a binding under which nothing was started end too: a drain would have to come back for it."""
    if judged.verdict.why is not Why.PLANNED:
        return judged
    return Judged(judged.placement, judged.cluster, Executed(Why.PLANNED), judged.standing)
