"""Drains: cordon a cluster, then evict its placements one after another (`rules/lifecycle.md#evictions`).

The state of a drain is in the database, so any worker can continue it, also after a crash.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from clusters.fleet import CORDON_KEY, CORDON_VALUE, EligibilityKind
from clusters.models import ClusterTaint, MemberCluster, Membership
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import clusters_named, cordon
from clusters.operations.join import CLUSTER
from fleetui.apimachinery.errors import (
    FieldError,
    raise_errors,
)
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.words import counted
from fleetui.audit import (
    AuditEvent,
    actor_name,
    record,
    record_all,
    record_event,
)
from fleetui.bulk import BATCH_SIZE, batched
from fleetui.prepared import PreparedQuery
from placements.engine.disruption import EvictionReason, Executed, Invalid, KeptReason
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Drain, DrainStep
from placements.services.disruption.evictions import EvictionCheck, execute, judge
from placements.services.disruption.queries import (
    has_started_run,
    left_of,
    numbers_facts,
    why_placement_stays,
)
from placements.services.rollout_state import RolloutContext
from placements.services.rollouts.operations import check_all_possible

TRY_AGAIN = timedelta(seconds=10)
MOSTTRIED = 50
"""Most evictions that one pass evaluates: each reads the complete placement."""


def take_steps(drain: Drain, *, now: datetime) -> None:
    """Update the steps, then evict as many placements as the options allow, in their order."""
    steps = note_steps(drain, now=now)
    room = drain.at_once - _evictions_in_progress(drain, steps)
    due = [
        step
        for step in steps
        if step.state in TRIED and not (step.try_at and step.try_at > now)
    ]
    for step in due[:MOSTTRIED]:
        if room <= 0:
            return
        if not _is_moving_elsewhere(drain, step.placement_name):
            room -= _try(drain, step, now=now)


def note_steps(drain: Drain, *, now: datetime) -> list[DrainStep]:
    """Update the step of every placement; return the steps in the order of eviction."""
    rows = Binding.objects.filter(cluster_name=drain.cluster_name).select_related(
        "placement"
    )
    bindings = {row.placement.full_name: row for row in rows}
    known = set(drain.steps.values_list("placement_name", flat=True))
    missing = [
        DrainStep(drain=drain, placement_name=name, changed_at=now)
        for name in bindings
        if name not in known
    ]
    DrainStep.objects.bulk_create(missing, batch_size=500, ignore_conflicts=True)
    place = {name: at for at, name in enumerate(drain.first)}
    last = len(place)
    steps = sorted(
        drain.steps.all(),
        key=lambda step: (place.get(step.placement_name, last), step.placement_name),
    )
    for step in steps:
        state, why = _state_without_eviction(bindings.get(step.placement_name))
        if state != DrainStep.State.WAITING or step.state not in TRIED:
            _put(step, state, why, now=now)
    return steps


def _state_without_eviction(binding: Binding | None) -> tuple[DrainStep.State, str]:
    """Return how far a placement is, and why; it waits where it has to be evicted."""
    if binding is None:
        return DrainStep.State.GONE, ""
    if binding.placement.deleting_since:
        return DrainStep.State.LEAVING, EvictionReason.BEING_DELETED
    if binding.phase in (Phase.REMOVING, Phase.REMOVE_FAILED):
        return DrainStep.State.LEAVING, EvictionReason.LEAVING
    if binding.state == BindingState.UNSCHEDULED and binding.placement.is_staged:
        return DrainStep.State.NEXT_RUN, KeptReason.NEXT_RUN
    if stays := why_placement_stays(binding.placement):
        return DrainStep.State.STAYS, stays
    return DrainStep.State.WAITING, ""


TRIED = (DrainStep.State.WAITING, DrainStep.State.BLOCKED)


def _put(
    step: DrainStep,
    state: DrainStep.State,
    why: str,
    *,
    now: datetime,
    check: EvictionCheck | None = None,
) -> None:
    verdict = check.verdict if check else None
    numbers = (
        None
        if verdict is None or isinstance(verdict, Invalid)
        else numbers_facts(verdict.numbers)
    )
    try_at = now + TRY_AGAIN if state == DrainStep.State.BLOCKED else None
    if (step.state, step.why, step.numbers, step.try_at) != (
        state,
        why,
        numbers,
        try_at,
    ):
        is_news = step.state != state
        step.state, step.why, step.numbers, step.try_at = state, why, numbers, try_at
        step.changed_at = now if is_news else step.changed_at
        step.save(update_fields=["state", "why", "numbers", "try_at", "changed_at"])


def _evictions_in_progress(drain: Drain, steps: Iterable[DrainStep]) -> int:
    if MemberCluster.objects.filter(
        name=drain.cluster_name,
        verdict__in=(EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT),
    ).exists():
        return 0
    leaving = [step for step in steps if step.state == DrainStep.State.LEAVING]
    return sum(step.why == EvictionReason.LEAVING for step in leaving)


def _is_moving_elsewhere(drain: Drain, placement: str) -> bool:
    others = DrainStep.objects.filter(
        drain__state=Drain.State.RUNNING,
        placement_name=placement,
        state=DrainStep.State.LEAVING,
    )
    return others.exclude(drain=drain).count() >= drain.per_placement


@transaction.atomic
def _try(drain: Drain, step: DrainStep, *, now: datetime) -> int:
    """Evict one placement; return 1 if an eviction is in progress now. A refusal is recorded once.

    The rows are locked and read again, because users and other workers may have changed them.
    """
    if not _may_evict(drain, step):
        return 0
    check = judge(step.placement_name, drain.cluster_name, now=now)
    if check.verdict.why is EvictionReason.PLANNED:
        check = replace(check, verdict=Executed(EvictionReason.PLANNED))
    context, verdict = check.context, check.verdict
    if context is None or _is_moving_elsewhere(drain, step.placement_name):
        return 0
    if kept := _why_kept(context):
        _put(step, DrainStep.State.BLOCKED, kept, now=now)
        return 0
    if isinstance(verdict, Executed) or verdict.why != step.why:
        execute(check, by=None, now=now, drain=drain, removes=not context.is_staged)
    if not isinstance(verdict, Executed):
        _put(step, DrainStep.State.BLOCKED, verdict.why, now=now, check=check)
        return 0
    if context.is_staged:
        _put(step, DrainStep.State.NEXT_RUN, KeptReason.NEXT_RUN, now=now)
        return 0
    _put(step, DrainStep.State.LEAVING, EvictionReason.LEAVING, now=now)
    return 1


def _why_kept(context: RolloutContext) -> KeptReason | None:
    if context.placement.is_held:
        return KeptReason.HELD
    if context.is_staged and has_started_run(context.placement):
        return KeptReason.STAGED_RUN
    return None


def _may_evict(drain: Drain, step: DrainStep) -> bool:
    row = (
        Drain.objects.select_for_update()
        .filter(pk=drain.pk, state=Drain.State.RUNNING)
        .first()
    )
    if row is None or not row.steps.filter(pk=step.pk, state__in=TRIED).exists():
        return False
    return _evictions_in_progress(row, row.steps.all()) < row.at_once


AT_ONCE, PER_PLACEMENT = 5, 1
MOST_AT_ONCE = 100
RESYNC = timedelta(seconds=2)
"""How often a drain is continued, also after its worker was killed."""
BATCH = 20
_NAMED = 20
OVER = frozenset(
    {DrainStep.State.GONE, DrainStep.State.STAYS, DrainStep.State.NEXT_RUN}
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Options of a drain; None keeps the present value, of a new drain the default.

    `at_once`: maximum of concurrent evictions. `first`: placements to evict first, in this order; the others
    follow by name. `deadline`: the time at which the drain stops.
    """

    at_once: int | None = None
    per_placement: int | None = None
    first: Sequence[str] | None = None
    deadline: datetime | None = None

    @property
    def columns(self) -> dict[str, object]:
        values = {
            **asdict(self),
            "first": None if self.first is None else list(self.first),
        }
        return {name: value for name, value in values.items() if value is not None}

    def errors(self, *, now: datetime) -> list[FieldError]:
        errors, most = [], f"1 to {MOST_AT_ONCE}"
        if self.at_once is not None and not 1 <= self.at_once <= MOST_AT_ONCE:
            errors.append(FieldError("atOnce", "out-of-range", "is out of range", most))
        if self.deadline is not None and self.deadline <= now:
            future = "a time in the future"
            errors.append(
                FieldError("deadline", "out-of-range", "is over already", future)
            )
        return errors


DEFAULT_PACE = Pace()


def why_not_drain(
    cluster: MemberCluster, _draining: Collection[str] | None = None
) -> str:
    words = f"{cluster.name} is leaving the fleet; nothing to drain"
    return words if cluster.membership == Membership.LEAVING else ""


def why_not_cancel(
    cluster: MemberCluster, draining: Collection[str] | None = None
) -> str:
    """Return why there is no drain to cancel; empty if there is one. `draining` are those that have one."""
    is_drained = (
        running_drain(cluster.name) is not None
        if draining is None
        else cluster.name in draining
    )
    return (
        "" if is_drained else f"{cluster.name} is not being drained; nothing to cancel"
    )


@transaction.atomic
def drain(
    clusters: Collection[str],
    *,
    by: User | None,
    now: datetime,
    pace: Pace = DEFAULT_PACE,
) -> list[Drain]:
    """Cordon clusters and start to evict their placements, or change the options of their running drains.

    All or none. At the deadline a drain ends as `expired`: evictions stop (`left_of` has the rest), the
    cordon stays, and evictions in progress complete. Raise UnknownClusterError, InvalidManifest for invalid
    options, ActionNotAllowed for a cluster that leaves.
    """
    lock_fleet()
    check_all_possible([why_not_drain(row) for row in clusters_named(clusters)])
    running = running_drains(clusters)
    errors = pace.errors(now=now)
    for cluster in clusters if pace.first else ():
        errors += _order_errors(cluster, list(pace.first or ()), running.get(cluster))
    raise_errors(errors)
    for row in running.values():
        _change_pace(row, pace, by=by, now=now)
    new = [name for name in clusters if name not in running]
    cordon(new, by=by, now=now)
    options: dict[str, Any] = {
        "at_once": AT_ONCE,
        "per_placement": PER_PLACEMENT,
        **pace.columns,
    }
    started = Drain.objects.bulk_create(
        [
            Drain(
                cluster_name=name,
                requeue_at=now,
                started_at=now,
                started_by=actor_name(by),
                **options,
            )
            for name in new
        ],
        batch_size=BATCH_SIZE,
    )
    record_all(
        [
            AuditEvent(
                "drain started", CLUSTER, row.cluster_name, after=_pace_facts(row)
            )
            for row in started
        ],
        by=by,
        now=now,
    )
    return [*running.values(), *started]


def _order_errors(
    cluster: str, first: Sequence[str], running: Drain | None
) -> list[FieldError]:
    bindings = Binding.objects.filter(cluster_name=cluster)
    here = set(bindings.values_list("placement__full_name", flat=True))
    if running:
        here |= set(running.steps.values_list("placement_name", flat=True))
    errors = []
    for at, name in enumerate(first):
        if name in first[:at]:
            errors.append(
                FieldError(f"order[{at}]", "duplicate", f"Duplicate value: {name!r}")
            )
        elif name not in here:
            errors.append(
                FieldError(
                    f"order[{at}]",
                    "not-found",
                    f"{name[:63]!r} is not placed on {cluster}",
                )
            )
    return errors


def _change_pace(row: Drain, pace: Pace, *, by: User | None, now: datetime) -> None:
    before = _pace_facts(row)
    for name, value in pace.columns.items():
        setattr(row, name, value)
    if (after := _pace_facts(row)) != before:
        row.save(update_fields=[*pace.columns])
        record_event(
            "drain pace changed",
            CLUSTER,
            row.cluster_name,
            before=before,
            after=after,
            by=by,
            now=now,
        )


def _pace_facts(row: Drain) -> dict[str, object]:
    deadline = row.deadline and row.deadline.isoformat()
    return {"atOnce": row.at_once, **omit_empty(order=row.first, deadline=deadline)}


@transaction.atomic
def cancel_drain(
    clusters: Collection[str], *, by: User | None, now: datetime
) -> list[Drain]:
    """Stop evicting from clusters, which stay cordoned; evicted placements do not return automatically.

    All or none. Raise UnknownClusterError, and ActionNotAllowed for a cluster without a running drain.
    """
    lock_fleet()
    running = running_drains(clusters)
    check_all_possible(
        [why_not_cancel(row, running) for row in clusters_named(clusters)]
    )
    return _cancel(clusters, f"cancelled by {actor_name(by)}", by=by, now=now)


@transaction.atomic
def continue_drains(
    clusters: Collection[str], *, ended_at: datetime, by: User | None, now: datetime
) -> list[str]:
    """Continue the drains of clusters that were cancelled at this time.

    Return the clusters that stay as they are: drained again, leaving, or not cordoned any more.
    """
    lock_fleet()
    running = running_drains(clusters)
    continued: list[str] = []
    for part in batched(clusters):
        cordons = ClusterTaint.objects.filter(key=CORDON_KEY, value=CORDON_VALUE)
        cordoned = cordons.filter(cluster__name__in=part).exclude(
            cluster__membership=Membership.LEAVING
        )
        names = set(cordoned.values_list("cluster__name", flat=True)) - running.keys()
        ended = Drain.objects.filter(
            cluster_name__in=names, state=Drain.State.CANCELLED, ended_at=ended_at
        )
        latest = dict(ended.order_by("pk").values_list("cluster_name", "pk"))
        Drain.objects.filter(pk__in=latest.values()).update(
            state=Drain.State.RUNNING, ended_at=None, ended_reason="", requeue_at=now
        )
        continued += latest
    record_all(
        [AuditEvent("drain continued", CLUSTER, name) for name in continued],
        by=by,
        now=now,
    )
    return [name for name in clusters if name not in set(continued)]


@transaction.atomic
def end_drains_of(clusters: Collection[str], *, by: User | None, now: datetime) -> None:
    _cancel(clusters, "the cluster has left the fleet", by=by, now=now)


def _cancel(
    clusters: Collection[str], reason: str, *, by: User | None, now: datetime
) -> list[Drain]:
    """End the running drains of these clusters; their rows are locked, because a worker may end them too."""
    running = Drain.objects.select_for_update().filter(state=Drain.State.RUNNING)
    rows: list[Drain] = []
    for part in batched(clusters):
        some = list(
            running.filter(cluster_name__in=part)
            .order_by("pk")
            .prefetch_related("steps")
        )
        for row in some:
            row.state, row.ended_at, row.ended_reason = (
                Drain.State.CANCELLED,
                now,
                reason,
            )
        ended = {
            "state": Drain.State.CANCELLED,
            "ended_at": now,
            "ended_reason": reason,
        }
        running.filter(pk__in=[row.pk for row in some]).update(**ended)
        rows += some
    record_all([_end_event(row) for row in rows], by=by, now=now)
    return rows


def advance_drains(*, now: datetime) -> int:
    """Continue the due drains; return how many. Each is claimed by a conditional update."""
    due = _due(now)
    # Row by row: a claim without a token is exact only when each update returns whether this worker has it.
    claimed = [
        row
        for row in _first_due.rows(now=now)
        if due.filter(pk=row.pk).update(requeue_at=now + RESYNC)
    ]
    for row in claimed:
        _continue(row, now=now)
    return len(claimed)


def _due(now: datetime) -> QuerySet[Drain]:
    return Drain.objects.filter(state=Drain.State.RUNNING, requeue_at__lte=now)


_first_due = PreparedQuery(lambda now: _due(now).order_by("requeue_at", "pk")[:BATCH])


def _continue(row: Drain, *, now: datetime) -> None:
    cluster = MemberCluster.objects.filter(name=row.cluster_name).first()
    taints = ClusterTaint.objects.filter(
        cluster=cluster, key=CORDON_KEY, value=CORDON_VALUE
    )
    if cluster is None or not taints.exists():
        ended = (
            "the cluster was uncordoned"
            if cluster
            else "the cluster has left the fleet"
        )
        _end(row, Drain.State.CANCELLED, ended, by=None, now=now)
        return
    is_expired = row.deadline is not None and row.deadline <= now
    (note_steps if is_expired else take_steps)(row, now=now)
    if not row.steps.exclude(state__in=OVER).exists():
        _end(row, Drain.State.DONE, "nothing is left to evict", by=None, now=now)
    elif is_expired:
        left = counted(len(left_of(row)), "placement")
        _end(
            row,
            Drain.State.EXPIRED,
            f"the deadline passed with {left} left",
            by=None,
            now=now,
        )


def running_drain(cluster: str) -> Drain | None:
    return Drain.objects.filter(cluster_name=cluster, state=Drain.State.RUNNING).first()


def running_drains(clusters: Collection[str]) -> dict[str, Drain]:
    return {
        row.cluster_name: row
        for part in batched(clusters)
        for row in Drain.objects.filter(
            cluster_name__in=part, state=Drain.State.RUNNING
        )
    }


def _end(
    row: Drain, state: Drain.State, reason: str, *, by: User | None, now: datetime
) -> None:
    ended = Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING)
    if state == Drain.State.EXPIRED:  # unless the deadline was changed meanwhile
        ended = ended.filter(deadline=row.deadline)
    is_ended = ended.update(state=state, ended_at=now, ended_reason=reason)
    row.refresh_from_db()
    if is_ended:
        record(_end_event(row), by=by, now=now)


def _end_event(row: Drain) -> AuditEvent:
    left = sorted(
        step.placement_name
        for step in row.steps.all()
        if step.state != DrainStep.State.GONE
    )
    after = {"because": row.ended_reason, "left": left[:_NAMED], "leftCount": len(left)}
    state = Drain.State(row.state)
    is_late = state is Drain.State.EXPIRED
    return AuditEvent(
        f"drain {state}", CLUSTER, row.cluster_name, after=after, is_warning=is_late
    )
