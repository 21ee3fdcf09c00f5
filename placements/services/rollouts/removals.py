"""Removals that wait for a person: those that no user requested, of what may be wanted after all.

Deleting a placement, a cluster that leaves, another policy or another revision are requests of a user, and
are done. An orphan is not: after a restore of the database, or of a copy of it, it is what runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import BooleanField, Value

from clusters.drivers.base import HeldObjects
from clusters.models import MemberCluster
from fleetui.apimachinery.words import names_and_more
from fleetui.audit import AuditEvent, actor_name, record_all
from fleetui.errors import FleetError
from fleetui.models import Event
from fleetui.task_queue import enqueue
from placements.models import Binding, Leftover, Placement, WaitingRemoval
from placements.services.results import PLACEMENT
from placements.services.rollout_state import (
    CONFIRMED,
    WAITING,
    orphans_to_decide,
    prunes_to_decide,
)
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
    real = {pair for pair in orphans if pair[1] in held[pair[0]]}
    rows = WaitingRemoval.objects.filter(cluster_name__in=held)
    recorded = {(row.cluster_name, row.placement_name): row for row in rows}
    ended = [row.pk for pair, row in recorded.items() if pair not in orphans]
    if ended:
        WaitingRemoval.objects.filter(pk__in=ended).delete()
    if not real:
        return set()
    known = known_placements({placement for _, placement in real})
    waiting: set[Pair] = set()
    events = []
    for cluster, placement in sorted(real):
        of_cluster = held[cluster]
        total = sum(one.count for one in of_cluster.values())
        going = sum(of_cluster[each].count for where, each in real if where == cluster)
        mine = of_cluster[placement]
        reason = reason_to_wait(mine, going, total, is_known=placement in known)
        row = recorded.get((cluster, placement))
        if not reason or (row is not None and row.confirmed_at is not None):
            continue
        waiting.add((cluster, placement))
        if row is None:
            after = {"cluster": cluster, "reason": reason}
            events.append(
                AuditEvent(
                    "removal waits", PLACEMENT, placement, after=after, is_warning=True
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
        names = names_and_more([str(one) for one in mine.containers], 3)
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
