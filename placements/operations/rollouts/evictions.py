"""Evicting a placement from a cluster: judged by its budget, then removed at once (lifecycle A.14, B.8.1).

Evictions of one placement come one after the other, by the lock on its row, so that no two count the same
available cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from fleetui.events import SYSTEM, Happening, record
from fleetui.revisions import once_more_when_beaten
from fleetui.wake import wake
from placements.models import Binding, ClusterUpdate, Drain, Eviction, Placement, Rollout
from placements.operations.asking import ask
from placements.operations.placements import PLACEMENT
from placements.operations.rollouts.asking import CARRY_OUT_DUE, ask_to_advance
from placements.operations.rollouts.runs import begin_run, running_rollout
from placements.queries.disruptions import budget_for, numbers_facts
from placements.rollout.disruption import Executed, Invalid, Verdict, Why, judge_eviction
from placements.rollout.failures import NO_FAILURE
from placements.rollout.state import EMPTY, Phase
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.disruption_documents import eviction_change_faults, parse_eviction
from placements.scheduling.faults import Faults
from placements.standing import Held, Standing, evictable, standing_of


@dataclass(frozen=True)
class Judged:
    """What is said to an eviction, while the placement is locked; no standing where there is none."""

    placement: str
    cluster: str
    verdict: Verdict
    standing: Standing | None


@transaction.atomic
def evict(placement: str, cluster: str, *, by: User | None, now: datetime) -> Eviction:
    """Let a placement leave a cluster, unless its budget says no; a refusal is an answer and raises nothing.

    The placement is decided anew: a cluster without a taint may be picked again at once.
    """
    return carry_out(judge(placement, cluster, now=now), by=by, now=now)


@once_more_when_beaten
def apply_eviction(document: Mapping[str, Any], *, by: User | None, now: datetime) -> tuple[Eviction, bool]:
    """Carry out an eviction that came as a document; tell whether it is new: it is done once (B.8.1).

    Raises Faults, also when an eviction of this name was about something else, or became so meanwhile: on
    two placements they are not one after the other.
    """
    wanted = parse_eviction(dict(document))
    name, spec = wanted.metadata.name, wanted.spec
    judged = judge(spec.placement_name, spec.cluster_name, now=now)
    earlier = Eviction.objects.filter(name=name).first()
    if earlier is None:
        return carry_out(judged, by=by, now=now, document=dict(document)), True
    faults = eviction_change_faults(parse_eviction(earlier.document), wanted)
    if faults:
        raise Faults(faults)
    return earlier, False


def judge(name: str, cluster: str, *, now: datetime) -> Judged:
    """Lock a placement and say what an eviction comes to; only inside a transaction."""
    placement = Placement.objects.select_for_update().filter(name=name).first()
    if placement is None:
        return Judged(name, cluster, Invalid(Why.NO_PLACEMENT), None)
    list(Binding.objects.select_for_update().filter(placement=placement, cluster_name=cluster))
    standing = standing_of(placement, now=now)
    return Judged(name, cluster, judge_eviction(evictable(standing), cluster, budget_for(name)), standing)


def carry_out(
    judged: Judged,
    *,
    by: User | None,
    now: datetime,
    drain: Drain | None = None,
    document: dict[str, Any] | None = None,
    removes: bool = True,
) -> Eviction:
    """Do what was judged and write it down; only in the transaction that judged it.

    Without `removes` the binding ends and its resources stay until a staged run takes them away.
    """
    verdict, standing = judged.verdict, judged.standing
    if standing and isinstance(verdict, Executed) and verdict.why is not Why.LEAVING:
        _take_off(standing, judged.cluster, by=by, now=now, removes=removes)
    row = _written(judged, by=by, now=now, drain=drain, document=document)
    after = {"cluster": judged.cluster, "outcome": row.outcome, "why": row.why}
    record(Happening("evicted", PLACEMENT, judged.placement, after=after), by=by, now=now)
    return row


def _written(
    judged: Judged, *, by: User | None, now: datetime, drain: Drain | None, document: dict[str, Any] | None
) -> Eviction:
    verdict = judged.verdict
    return Eviction.objects.create(
        name=document["metadata"]["name"] if document else None,
        document=document,
        placement=judged.standing.placement if judged.standing else None,
        placement_name=judged.placement,
        cluster_name=judged.cluster,
        drain=drain,
        outcome=outcome_of(verdict),
        why=verdict.why,
        numbers=None if isinstance(verdict, Invalid) else numbers_facts(verdict.numbers),
        at=now,
        by=by.get_username() if by else SYSTEM,
    )


def outcome_of(verdict: Verdict) -> Eviction.Outcome:
    """Name what becomes of an eviction."""
    if isinstance(verdict, Invalid):
        return Eviction.Outcome.INVALID
    is_executed = isinstance(verdict, Executed)
    return Eviction.Outcome.EXECUTED if is_executed else Eviction.Outcome.NOT_EXECUTED


def _take_off(standing: Standing, cluster: str, *, by: User | None, now: datetime, removes: bool) -> None:
    """End the binding and start its removal, in the run that is under way or one of its own."""
    placement = standing.placement
    placement.asked_because = f"evicted from {cluster}"
    placement.asked_by = by.get_username() if by else SYSTEM
    ask([placement.pk], because=placement.asked_because, by=placement.asked_by)
    binding = next(one for one in standing.bindings if one.cluster_name == cluster)
    row = Binding.objects.filter(pk=binding.pk)
    if binding.phase in EMPTY:
        row.delete()
    else:
        row.exclude(state=BindingState.UNSCHEDULED).update(
            state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND
        )
        if removes:
            _start_removal(standing, binding, now=now)
    ask_to_advance([placement.pk])


def _start_removal(standing: Standing, binding: Held, *, now: datetime) -> None:
    """Let the removal start now; a call that is under way keeps its lease, and this one waits for it."""
    facts: dict[str, Any] = {
        "phase": Phase.REMOVING,
        "phase_since": now,
        "attempts": 1,
        "retry_at": None,
        "message": "",
    }
    facts |= NO_FAILURE.columns()
    Binding.objects.filter(pk=binding.pk).update(**facts, timed_since=None, work_at=now)
    wake(CARRY_OUT_DUE)
    if standing.is_staged:
        return
    cluster = binding.cluster_name
    run = running_rollout(standing.placement) or begin_run(standing, [[cluster]], now=now)
    earlier = ClusterUpdate.objects.filter(
        rollout__placement=standing.placement, cluster_name=cluster, outcome=""
    )
    earlier.update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
    ClusterUpdate.objects.create(rollout=run, cluster_name=cluster, what="remove", started_at=now)
    Rollout.objects.filter(pk=run.pk).update(changes=F("changes") + 1)
