"""Draining a cluster: cordoned, then emptied one eviction after another (lifecycle A.14).

Everything that a drain knows stands in the database: a look takes it from there, so that it makes no
difference which worker looks, or whether the last one was killed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from clusters.models import CORDON_KEY, CORDON_VALUE, ClusterTaint, MemberCluster
from clusters.operations.editing import UnknownClusterError, cordon
from clusters.operations.fleet_changes import lock_fleet
from clusters.operations.joining import CLUSTER
from fleetui.events import SYSTEM, Happening, record
from placements.explain.wording import counted
from placements.models import Binding, Drain, DrainStep
from placements.operations.rollouts.drain_steps import note_steps, take_steps
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.disruptions import left_of
from placements.scheduling.faults import Fault, Faults

AT_ONCE, PER_PLACEMENT = 5, 1
MOST_AT_ONCE = 100
LOOK = timedelta(seconds=2)
"""How often a drain is looked at; after a worker was killed in its look, another one comes as soon."""
BATCH = 20
_NAMED = 20
_OVER = frozenset({DrainStep.State.GONE, DrainStep.State.STAYS, DrainStep.State.NEXT_RUN})


@dataclass(frozen=True, slots=True)
class Pace:
    """How a drain goes; what is None is left as it is, for a new drain at its default.

    `at_once`: how many evictions may be under way. `first`: placements that go before the others, in this
    order; the others follow by name. `deadline`: when it ends, whatever is left by then.
    """

    at_once: int | None = None
    per_placement: int | None = None
    first: Sequence[str] | None = None
    deadline: datetime | None = None

    @property
    def columns(self) -> dict[str, object]:
        """Give what was said, by column."""
        said = {
            "at_once": self.at_once,
            "per_placement": self.per_placement,
            "first": None if self.first is None else list(self.first),
            "deadline": self.deadline,
        }
        return {name: value for name, value in said.items() if value is not None}


DEFAULT_PACE = Pace()


@transaction.atomic
def drain(cluster: str, *, by: User | None, now: datetime, pace: Pace = DEFAULT_PACE) -> Drain:
    """Cordon a cluster and begin to evict what is on it, at a pace; cordon only is another operation.

    One that is being drained goes on, at the new pace where one is said. At the deadline nothing more is
    evicted and the drain ends as `expired`: what is left is told by `left_of`, the cordon stays, and what
    was evicted before leaves all the same. Raises UnknownClusterError, Faults for a pace that will not do.
    """
    lock_fleet()
    if not MemberCluster.objects.filter(name=cluster).exists():
        raise UnknownClusterError(cluster)
    running = _running(cluster)
    _refuse_odd(pace, cluster, running, now=now)
    if running:
        _change_pace(running, pace, by=by, now=now)
        return running
    cordon([cluster], by=by, now=now)
    row = Drain.objects.create(
        cluster_name=cluster,
        look_at=now,
        started_at=now,
        started_by=by.get_username() if by else SYSTEM,
        **{"at_once": AT_ONCE, "per_placement": PER_PLACEMENT, **pace.columns},
    )
    record(Happening("drain began", CLUSTER, cluster, after=_pace_facts(row)), by=by, now=now)
    return row


def _refuse_odd(pace: Pace, cluster: str, running: Drain | None, *, now: datetime) -> None:
    faults = []
    if pace.at_once is not None and not 1 <= pace.at_once <= MOST_AT_ONCE:
        faults.append(Fault("atOnce", "out-of-range", "is out of range", f"1 to {MOST_AT_ONCE}"))
    if pace.deadline is not None and pace.deadline <= now:
        faults.append(Fault("deadline", "out-of-range", "is over already", "a moment to come"))
    first = list(pace.first or ())
    here = _drained_from(cluster, running) if first else set()
    for at, name in enumerate(first):
        if name in first[:at]:
            faults.append(Fault(f"order[{at}]", "duplicate", f"{name!r} stands above already"))
        elif name not in here:
            faults.append(Fault(f"order[{at}]", "not-found", f"{name[:63]!r} is not placed on {cluster}"))
    if faults:
        raise Faults(faults)


def _drained_from(cluster: str, running: Drain | None) -> set[str]:
    """Name what is on a cluster, or was when its drain began."""
    here = Binding.objects.filter(cluster_name=cluster).values_list("placement__name", flat=True)
    left = running.steps.values_list("placement_name", flat=True) if running else ()
    return {*here, *left}


def _change_pace(row: Drain, pace: Pace, *, by: User | None, now: datetime) -> None:
    before = _pace_facts(row)
    for name, value in pace.columns.items():
        setattr(row, name, value)
    if _pace_facts(row) != before:
        row.save(update_fields=[*pace.columns])
        told = Happening(
            "drain pace changed", CLUSTER, row.cluster_name, before=before, after=_pace_facts(row)
        )
        record(told, by=by, now=now)


def _pace_facts(row: Drain) -> dict[str, object]:
    facts: dict[str, object] = {"atOnce": row.at_once}
    facts |= {"order": row.first} if row.first else {}
    return facts | ({"deadline": row.deadline.isoformat()} if row.deadline else {})


@transaction.atomic
def cancel_drain(cluster: str, *, by: User | None, now: datetime) -> Drain:
    """Evict nothing more from a cluster; it stays cordoned, and what has left does not come back by itself.

    Raises HandRefusedError when it is not being drained.
    """
    lock_fleet()
    running = _running(cluster)
    if running is None:
        raise HandRefusedError(f"{cluster} is not being drained; there is nothing to cancel")
    name = by.get_username() if by else SYSTEM
    _end(running, Drain.State.CANCELLED, f"cancelled by {name}", by=by, now=now)
    return running


def advance_drains(*, now: datetime) -> int:
    """Look at the drains that are due; tell how many. Each is taken on by a conditional update."""
    due = Drain.objects.filter(state=Drain.State.RUNNING, look_at__lte=now)
    found = list(due.order_by("look_at", "pk")[:BATCH])
    claimed = [row for row in found if due.filter(pk=row.pk).update(look_at=now + LOOK)]
    for row in claimed:
        _look(row, now=now)
    return len(claimed)


def _look(row: Drain, *, now: datetime) -> None:
    ended = _overtaken(row.cluster_name)
    if ended:
        _end(row, Drain.State.CANCELLED, ended, by=None, now=now)
        return
    is_expired = row.deadline is not None and row.deadline <= now
    (note_steps if is_expired else take_steps)(row, now=now)
    if not row.steps.exclude(state__in=_OVER).exists():
        _end(row, Drain.State.DONE, "nothing is left that can go", by=None, now=now)
    elif is_expired:
        left = counted(len(left_of(row)), "placement")
        _end(row, Drain.State.EXPIRED, f"the deadline passed with {left} left", by=None, now=now)


def _overtaken(cluster: str) -> str:
    """Say why a drain makes no sense any more: what has left would come back, or the cluster is gone."""
    row = MemberCluster.objects.filter(name=cluster).first()
    if row is None:
        return "the cluster has left the fleet"
    taints = ClusterTaint.objects.filter(cluster=row, key=CORDON_KEY, value=CORDON_VALUE)
    return "" if taints.exists() else "the cluster was uncordoned"


def _running(cluster: str) -> Drain | None:
    return Drain.objects.filter(cluster_name=cluster, state=Drain.State.RUNNING).first()


def _end(row: Drain, state: Drain.State, because: str, *, by: User | None, now: datetime) -> None:
    ended = Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING)
    if state == Drain.State.EXPIRED:  # unless somebody put the deadline off meanwhile
        ended = ended.filter(deadline=row.deadline)
    if ended.update(state=state, ended_at=now, ended_because=because):
        left = [step.placement_name for step in left_of(row)]
        after = {"because": because, "left": left[:_NAMED], "leftCount": len(left)}
        record(Happening(f"drain {state}", CLUSTER, row.cluster_name, after=after), by=by, now=now)
    row.refresh_from_db()
