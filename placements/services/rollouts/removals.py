"""Orphans: what clusters hold of placements that no binding wants any more, removed or kept back.

Deleting a placement, a cluster that leaves, another policy or another revision are requests of a user, and
are done. An orphan is not: after a restore of the database, or of a copy of it, it is what runs.

Fences keep a worker that was stopped from changing a cluster after its lease. This is the second guard, for
clusters that do not know fences. What a user left on a cluster on purpose is a leftover, and stays.
"""

from collections.abc import (
    Callable,
    Iterable,
    Mapping,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import BooleanField, Q, QuerySet, Value

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.base import DriverFenced, HeldObjects, Observation, Removed
from clusters.drivers.concurrency import call_all
from clusters.drivers.registry import DRIVERS
from clusters.models import MemberCluster, Membership
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.words import names_and_more
from fleetui.audit import AuditEvent, actor_name, record_all
from fleetui.bulk import claim_batch
from fleetui.errors import FleetError
from fleetui.models import Event
from fleetui.task_queue import enqueue
from fleetui.threads import close_connections
from placements.engine.rollout.state import Phase
from placements.manifests.strategy import ApplyType
from placements.models import Binding, Leftover, Placement, WaitingRemoval
from placements.services.results import PLACEMENT
from placements.services.rollout_state import (
    CONFIRMED,
    WAITING,
    orphans_to_decide,
    prunes_to_decide,
)
from placements.services.rollouts.worker import warning_rows, warning_words
from placements.services.teams import check_placement
from placements.services.workqueue import RUN_CLUSTER_CALLS, enqueue_rollout

FEW_OBJECTS = 5
"""So many objects are removed without a person, however few the cluster has."""
_ABOUT_ORPHANS = ("removal waits", "removal confirmed", "orphan kept", "orphan removed")
LARGEST_SHARE = 10
"""A removal of more than one in so many objects of a member waits."""
Pair = tuple[str, str]


class NoWaitingRemovalError(FleetError):
    def __init__(self, placement: str, cluster: str) -> None:
        super().__init__(f"no removal of {placement} on {cluster} waits for a decision")


@dataclass(frozen=True, slots=True)
class RemovalToDecide:
    """A removal that waits: of which objects of a cluster, why, and since when.

    `is_orphan`: no placement wants it there; otherwise it is of an older version than the cluster has.
    """

    cluster_name: str
    placement_name: str
    reason: str
    since: datetime
    is_orphan: bool


def hold_back(
    orphans: Mapping[Pair, int],
    held: Mapping[str, Mapping[str, HeldObjects]],
    *,
    now: datetime,
) -> set[Pair]:
    """Return which orphans, as pairs of cluster and placement, wait for a person, and record them.

    `held` is what the clusters of this round hold; those of simulated clusters have nothing to lose.
    """
    rows = WaitingRemoval.objects.filter(cluster_name__in=held)
    recorded = {(row.cluster_name, row.placement_name): row for row in rows}
    ended = [row.pk for pair, row in recorded.items() if pair not in orphans]
    if ended:
        WaitingRemoval.objects.filter(pk__in=ended).delete()
    waiting: set[Pair] = set()
    events = []
    for (cluster, placement), reason in _reasons_to_wait(orphans, held).items():
        mine, total = held[cluster][placement], _count_of(held[cluster].values())
        row = recorded.get((cluster, placement))
        if row is not None and row.confirmed_at is not None:
            continue
        waiting.add((cluster, placement))
        if row is None:
            events.append(
                AuditEvent(
                    "removal waits",
                    PLACEMENT,
                    placement,
                    after={"cluster": cluster, "reason": reason},
                    is_warning=True,
                )
            )
        values = {
            "objects_count": mine.count,
            "of_objects": total,
            "reason": reason[:500],
        }
        WaitingRemoval.objects.update_or_create(
            cluster_name=cluster,
            placement_name=placement,
            defaults=values,
            create_defaults={**values, "noted_at": now},
        )
    record_all(events, by=None, now=now)
    return waiting


def _reasons_to_wait(
    orphans: Iterable[Pair], held: Mapping[str, Mapping[str, HeldObjects]]
) -> dict[Pair, str]:
    real = sorted(pair for pair in orphans if pair[1] in held[pair[0]])
    known = known_placements({placement for _, placement in real})
    reasons = {}
    for cluster, placement in real:
        of_cluster = held[cluster]
        reason = reason_to_wait(
            of_cluster[placement],
            _count_of(of_cluster[each] for where, each in real if where == cluster),
            _count_of(of_cluster.values()),
            is_known=placement in known,
        )
        if reason:
            reasons[cluster, placement] = reason
    return reasons


def _count_of(several: Iterable[HeldObjects]) -> int:
    return sum(objects.count for objects in several)


def known_placements(names: set[str]) -> set[str]:
    """Return those that this database has, or has an event of: the others are from another one."""
    rows = Placement.objects.filter(full_name__in=names).values_list(
        "full_name", flat=True
    )
    events = Event.objects.filter(kind=PLACEMENT, name__in=names).exclude(
        verb__in=_ABOUT_ORPHANS
    )
    return {*rows, *events.values_list("name", flat=True).distinct()}


def reason_to_wait(mine: HeldObjects, going: int, total: int, *, is_known: bool) -> str:
    """Return why an orphan is not removed without a person; "" where it is."""
    if not is_known:
        return "This console has never had a placement of this name, as after a restored backup."
    if mine.containers:
        names = names_and_more([str(container) for container in mine.containers], 3)
        return f"It contains {names}: what others put there would be deleted with it."
    if going > max(FEW_OBJECTS, total / LARGEST_SHARE):
        return (
            f"{going:,} of {total:,} objects on the cluster would be removed at once."
        )
    return ""


def waiting_removals(
    cluster: str = "", *, most: int | None = None
) -> list[RemovalToDecide]:
    """Return the removals that wait, on one cluster or on all, by cluster and placement."""
    orphans, behind = orphans_to_decide(), prunes_to_decide()
    if cluster:
        orphans, behind = (
            orphans.filter(cluster_name=cluster),
            behind.filter(cluster_name=cluster),
        )
    rows = orphans.order_by().values_list(
        "cluster_name",
        "placement_name",
        "reason",
        "noted_at",
        Value(True, BooleanField()),
    )
    others = behind.order_by().values_list(
        "cluster_name",
        "placement__full_name",
        "message",
        "phase_changed_at",
        Value(False, BooleanField()),
    )
    found = rows.union(others, all=True).order_by("cluster_name", "placement_name")[
        :most
    ]
    return [
        RemovalToDecide(
            cluster_name, placement_name, reason, since, is_orphan=is_orphan
        )
        for cluster_name, placement_name, reason, since, is_orphan in found
    ]


@transaction.atomic
def confirm_removal(
    cluster: str, placement: str, *, by: User | None, now: datetime
) -> None:
    """Remove what waits on a cluster. Raise NoWaitingRemovalError, NotOfTeamError."""
    check_placement(by, placement)
    values = {"confirmed_at": now, "confirmed_by": actor_name(by)}
    orphans = WaitingRemoval.objects.filter(
        cluster_name=cluster, placement_name=placement, confirmed_at=None
    )
    is_orphan = bool(orphans.update(**values))
    behind = Binding.objects.filter(
        cluster_name=cluster, placement__full_name=placement, removal_check=WAITING
    )
    placements = list(behind.values_list("placement_id", flat=True))
    behind.update(removal_check=CONFIRMED, retry_at=None)
    if not is_orphan and not placements:
        raise NoWaitingRemovalError(placement, cluster)
    _record("removal confirmed", cluster, placement, by=by, now=now)
    MemberCluster.objects.filter(name=cluster).update(
        inventory_at=now
    )  # the next round removes it
    enqueue_rollout(placements)
    enqueue(RUN_CLUSTER_CALLS)


@transaction.atomic
def keep_objects(
    cluster: str, placement: str, *, by: User | None, now: datetime
) -> None:
    """Leave an orphan on its cluster, as a leftover. Raise NoWaitingRemovalError, NotOfTeamError."""
    check_placement(by, placement)
    waiting = WaitingRemoval.objects.filter(
        cluster_name=cluster, placement_name=placement, confirmed_at=None
    )
    if not waiting.delete()[0]:
        raise NoWaitingRemovalError(placement, cluster)
    Leftover.objects.get_or_create(
        placement_name=placement, cluster_name=cluster, defaults={"noted_at": now}
    )
    _record("orphan kept", cluster, placement, by=by, now=now)


def _record(
    verb: str, cluster: str, placement: str, *, by: User | None, now: datetime
) -> None:
    record_all(
        [AuditEvent(verb, PLACEMENT, placement, after={"cluster": cluster})],
        by=by,
        now=now,
    )


BATCH = 100
THREADS = 16
CALL_SECONDS = 5.0
ROUND_SECONDS = 15.0
SHORTEST_PERIOD = timedelta(minutes=2)
PERIOD_PER_CLUSTER = timedelta(seconds=0.12)
"""A large fleet takes its inventory more slowly, at about eight clusters a second."""


def is_due(*, now: datetime) -> bool:
    return _due(now).exists()


def _due(now: datetime) -> QuerySet[MemberCluster]:
    return MemberCluster.objects.filter(
        Q(inventory_at=None) | Q(inventory_at__lte=now), driver__in=DRIVERS
    ).exclude(membership=Membership.LEAVING)


def remove_orphans(
    *, now: datetime, threads: int = THREADS, clock: Callable[[], datetime] = wall_clock
) -> int:
    """Read the inventory of up to 100 clusters and remove what no binding wants; return how many clusters.

    A placement that was removed or applied since the inventory has a higher fence, so the cluster refuses its
    removal here.
    """
    period = max(SHORTEST_PERIOD, MemberCluster.objects.count() * PERIOD_PER_CLUSTER)
    claimed = claim_batch(
        _due(now), "inventory_at", "pk", size=BATCH, inventory_at=now + period
    )
    rows = MemberCluster.objects.select_related("credential").in_bulk(claimed)
    take = {pk: partial(take_inventory, row, clock) for pk, row in rows.items()}
    call = partial(
        call_all,
        threads=threads,
        seconds=ROUND_SECONDS,
        patience=CALL_SECONDS,
        at_end=close_connections,
    )
    observed = {
        rows[pk].name: one for pk, one in call(take) if isinstance(one, Observation)
    }
    fences = {
        name: observation.fences
        for name, observation in observed.items()
        if observation.fences is not None
    }
    orphans = find_orphans(fences)
    held = {name: observed[name].held for name in fences}
    waiting = hold_back(orphans, held, now=now)
    look_again(fences, now=now)

    by_name = {row.name: row for row in rows.values()}
    removals = {
        (cluster, placement): partial(
            remove_orphan, by_name[cluster], placement, fence, clock
        )
        for (cluster, placement), fence in orphans.items()
        if (cluster, placement) not in waiting
    }
    events = []
    for (cluster, placement), answer in call(removals):
        if isinstance(answer, Removed) and answer.existed:
            warnings = warning_words(warning_rows(answer.warnings))
            events.append(
                AuditEvent(
                    "orphan removed",
                    PLACEMENT,
                    placement,
                    after=omit_empty(cluster=cluster, warnings=warnings),
                )
            )
    record_all(events, by=None, now=now)
    return len(claimed)


def find_orphans(
    inventory: Mapping[str, Mapping[str, int]],
) -> dict[tuple[str, str], int]:
    """Return the fence of each pair of cluster and placement there that is neither bound nor a leftover.

    `inventory`: the fences by placement, by cluster. A leftover that is not in it is deleted.
    """
    pairs = {
        (cluster, name): fence
        for cluster, document in inventory.items()
        for name, fence in document.items()
    }
    bindings = Binding.objects.filter(cluster_name__in=inventory)
    bound = set(bindings.values_list("cluster_name", "placement__full_name"))
    leftovers = {
        (row.cluster_name, row.placement_name): row.pk
        for row in Leftover.objects.filter(cluster_name__in=inventory)
    }
    gone = [pk for pair, pk in leftovers.items() if pair not in pairs or pair in bound]
    if gone:
        Leftover.objects.filter(pk__in=gone).delete()
    return {
        pair: fence
        for pair, fence in pairs.items()
        if pair not in bound and pair not in leftovers
    }


def look_again(inventory: Mapping[str, Mapping[str, int]], *, now: datetime) -> None:
    """Read the objects soon where a cluster has no inventory of what is available there.

    At rest they are read every 15 minutes; what someone has deleted would be called available until then.
    """
    settled = Binding.objects.filter(
        cluster_name__in=inventory, phase=Phase.AVAILABLE, next_call_at__gt=now
    )
    settled = settled.exclude(
        apply_strategy__type=ApplyType.REPORT_DIFF
    )  # which writes no inventory
    keys = settled.values_list("pk", "cluster_name", "placement__full_name")
    lost = [
        pk for pk, cluster, placement in keys if placement not in inventory[cluster]
    ]
    if lost:
        Binding.objects.filter(pk__in=lost, phase=Phase.AVAILABLE).update(
            next_call_at=now
        )


def take_inventory(row: MemberCluster, clock: Callable[[], datetime]) -> Observation:
    return driver_for(row, clock=clock).observe(inventory=True, timeout=CALL_SECONDS)


def remove_orphan(
    row: MemberCluster, placement: str, fence: int, clock: Callable[[], datetime]
) -> Removed:
    try:
        return driver_for(row, clock=clock).remove(
            placement, fence=fence, timeout=CALL_SECONDS
        )
    except DriverFenced:  # it was removed or applied meanwhile
        return Removed(existed=False)


def keep_leftovers(placement: str, clusters: list[str], *, now: datetime) -> None:
    """Record what a placement leaves on these clusters on purpose, so that it does not count as an orphan."""
    rows = [
        Leftover(placement_name=placement, cluster_name=name, noted_at=now)
        for name in clusters
    ]
    Leftover.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)
