"""Evictions: checked against the disruption budget, then removed immediately.

See `rules/lifecycle.md#evictions`.

Evictions of one placement are serialized by the lock on its row, so that no two count the same available
cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from fleetui.apimachinery.errors import (
    raise_errors,
)
from fleetui.audit import (
    actor_name,
    record_event,
)
from fleetui.concurrency import retry_on_conflict
from fleetui.task_queue import enqueue
from placements.engine.disruption import (
    EvictionReason,
    Executed,
    Invalid,
    Verdict,
    judge_eviction,
)
from placements.engine.rollout.state import EMPTY
from placements.manifests.binding import BindingState
from placements.manifests.disruption import eviction_change_errors, parse_eviction
from placements.models import (
    Binding,
    ClusterUpdate,
    Drain,
    Eviction,
    Placement,
    Rollout,
)
from placements.services.disruption.queries import budget_for, numbers_facts
from placements.services.results import PLACEMENT
from placements.services.rollout_state import (
    RolloutContext,
    eviction_context,
    load_rollout_context,
)
from placements.services.rollouts.controller import create_run, running_rollout
from placements.services.rollouts.starts import build_updates
from placements.services.teams import check_placement
from placements.services.workqueue import (
    RUN_CLUSTER_CALLS,
    enqueue_rollout,
    enqueue_scheduling,
)


@dataclass(frozen=True)
class EvictionCheck:
    """Result of the check of an eviction, while the placement is locked; `context` is None without one."""

    placement: str
    cluster: str
    verdict: Verdict
    context: RolloutContext | None


@transaction.atomic
def evict(placement: str, cluster: str, *, by: User | None, now: datetime) -> Eviction:
    """Evict a placement from a cluster within its disruption budget; a refusal is a result, not an exception.

    The placement is rescheduled: a cluster without a taint may be selected again immediately.
    """
    check_placement(by, placement)
    return execute(judge(placement, cluster, now=now), by=by, now=now)


@retry_on_conflict
def apply_eviction(
    document: Mapping[str, Any], *, by: User | None, now: datetime
) -> tuple[Eviction, bool]:
    """Perform the eviction of a manifest, once; return it and whether it is new.

    Raise InvalidManifest, also if an eviction of this name has another target: evictions of two placements
    are not serialized.
    """
    manifest = parse_eviction(dict(document))
    name, spec = manifest.metadata.name, manifest.spec
    check_placement(by, spec.placement_name)
    check = judge(spec.placement_name, spec.cluster_name, now=now)
    earlier = Eviction.objects.filter(name=name).first()
    if earlier is None:
        return execute(check, by=by, now=now, document=dict(document)), True
    raise_errors(eviction_change_errors(parse_eviction(earlier.document), manifest))
    return earlier, False


def judge(name: str, cluster: str, *, now: datetime) -> EvictionCheck:
    """Lock a placement and check an eviction; requires a transaction."""
    placement = Placement.objects.select_for_update().filter(full_name=name).first()
    if placement is None:
        return EvictionCheck(name, cluster, Invalid(EvictionReason.NO_PLACEMENT), None)
    list(
        Binding.objects.select_for_update().filter(
            placement=placement, cluster_name=cluster
        )
    )
    context = load_rollout_context(placement, now=now)
    return EvictionCheck(
        name,
        cluster,
        judge_eviction(eviction_context(context), cluster, budget_for(name)),
        context,
    )


def execute(
    check: EvictionCheck,
    *,
    by: User | None,
    now: datetime,
    drain: Drain | None = None,
    document: dict[str, Any] | None = None,
    removes: bool = True,
) -> Eviction:
    """Perform a checked eviction and record it; requires the transaction of the check.

    Without `removes` the binding ends and its resources stay until a staged run removes them.
    """
    verdict, context = check.verdict, check.context
    if (
        context
        and isinstance(verdict, Executed)
        and verdict.why is not EvictionReason.LEAVING
    ):
        _unschedule(context, check.cluster, by=by, now=now, removes=removes)
    is_executed = isinstance(verdict, Executed)
    outcome = (
        Eviction.Outcome.EXECUTED if is_executed else Eviction.Outcome.NOT_EXECUTED
    )
    row = Eviction.objects.create(
        name=document["metadata"]["name"] if document else None,
        document=document,
        placement=context.placement if context else None,
        placement_name=check.placement,
        cluster_name=check.cluster,
        drain=drain,
        outcome=Eviction.Outcome.INVALID if isinstance(verdict, Invalid) else outcome,
        why=verdict.why,
        numbers=None
        if isinstance(verdict, Invalid)
        else numbers_facts(verdict.numbers),
        at=now,
        by=actor_name(by),
    )
    record_event(
        "evicted",
        PLACEMENT,
        check.placement,
        after={"cluster": check.cluster, "outcome": row.outcome, "why": row.why},
        is_warning=not is_executed,
        by=by,
        now=now,
    )
    return row


def _unschedule(
    context: RolloutContext,
    cluster: str,
    *,
    by: User | None,
    now: datetime,
    removes: bool,
) -> None:
    """End the binding and start its removal, in the present rollout or a new one."""
    placement = context.placement
    placement.trigger = f"evicted from {cluster}"
    placement.triggered_by = actor_name(by)
    enqueue_scheduling(
        [placement.pk], trigger=placement.trigger, by=placement.triggered_by
    )
    binding = next(
        columns for columns in context.bindings if columns.cluster_name == cluster
    )
    row = Binding.objects.filter(pk=binding.pk)
    if binding.phase in EMPTY:
        row.delete()
    else:
        row.exclude(state=BindingState.UNSCHEDULED).update(
            state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND
        )
    enqueue_rollout([placement.pk])
    if not removes or binding.phase in EMPTY:
        return
    row.update(**build_updates(binding, None, attempt=1, now=now).columns)
    enqueue(RUN_CLUSTER_CALLS)
    if not context.is_staged:
        run = running_rollout(placement) or create_run(context, [[cluster]], now=now)
        ClusterUpdate.objects.filter(
            rollout__placement=placement, cluster_name=cluster, outcome=""
        ).update(outcome=ClusterUpdate.Outcome.SUPERSEDED, ended_at=now)
        ClusterUpdate.objects.create(
            rollout=run, cluster_name=cluster, what="remove", started_at=now
        )
        Rollout.objects.filter(pk=run.pk).update(
            progress_version=F("progress_version") + 1
        )
