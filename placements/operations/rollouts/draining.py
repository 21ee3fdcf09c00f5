"""Draining a cluster: cordoned, then emptied one eviction after another (lifecycle A.14).

Everything that a drain knows stands in the database: a look takes it from there, so that it makes no
difference which worker looks, or whether the last one was killed.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from clusters.models import CORDON_KEY, CORDON_VALUE, ClusterTaint, MemberCluster
from clusters.operations.editing import UnknownClusterError, cordon
from clusters.operations.fleet_changes import lock_fleet
from clusters.operations.joining import CLUSTER
from fleetui.events import SYSTEM, Happening, record
from placements.models import Drain, DrainStep
from placements.operations.rollouts.drain_steps import take_steps
from placements.operations.rollouts.hands import HandRefusedError

AT_ONCE, PER_PLACEMENT = 5, 1
LOOK = timedelta(seconds=2)
"""How often a drain is looked at; after a worker was killed in its look, another one comes as soon."""
BATCH = 20
_OVER = frozenset({DrainStep.State.GONE, DrainStep.State.STAYS, DrainStep.State.NEXT_RUN})


@transaction.atomic
def drain(
    cluster: str,
    *,
    by: User | None,
    now: datetime,
    at_once: int = AT_ONCE,
    per_placement: int = PER_PLACEMENT,
) -> Drain:
    """Cordon a cluster and begin to evict what is on it; one that is being drained goes on as it is.

    Raises UnknownClusterError.
    """
    lock_fleet()
    if not MemberCluster.objects.filter(name=cluster).exists():
        raise UnknownClusterError(cluster)
    running = _running(cluster)
    if running:
        return running
    cordon([cluster], by=by, now=now)
    row = Drain.objects.create(
        cluster_name=cluster,
        at_once=at_once,
        per_placement=per_placement,
        look_at=now,
        started_at=now,
        started_by=by.get_username() if by else SYSTEM,
    )
    record(Happening("drain began", CLUSTER, cluster, after={"atOnce": at_once}), by=by, now=now)
    return row


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
    take_steps(row, now=now)
    if not row.steps.exclude(state__in=_OVER).exists():
        _end(row, Drain.State.DONE, "nothing is left that can go", by=None, now=now)


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
    if ended.update(state=state, ended_at=now, ended_because=because):
        after = {"because": because}
        record(Happening(f"drain {state}", CLUSTER, row.cluster_name, after=after), by=by, now=now)
    row.refresh_from_db()
