"""Orphans: what clusters hold of placements that no binding wants any more, found and removed.

Fences keep a worker that was stopped from changing a cluster after its lease. This is the second guard, for
clusters that do not know fences. What a user left on a cluster on purpose is a leftover, and stays.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Q, QuerySet

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.base import DriverFenced, Observation, Removed
from clusters.drivers.concurrency import call_all
from clusters.drivers.registry import DRIVERS
from clusters.models import MemberCluster, Membership
from fleetui.audit import AuditEvent, record_all
from fleetui.bulk import claim_batch
from fleetui.threads import close_connections
from placements.engine.rollout.state import Phase
from placements.manifests.strategy import ApplyType
from placements.models import Binding, Leftover
from placements.services.results import PLACEMENT
from placements.services.rollouts.api_warnings import warning_rows, warning_words
from placements.services.rollouts.removals import hold_back

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
    is_due = Q(inventory_at=None) | Q(inventory_at__lte=now)
    return MemberCluster.objects.filter(is_due, driver__in=DRIVERS).exclude(
        membership=Membership.LEAVING
    )


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
    found = {name: one for name, one in observed.items() if one.fences is not None}
    orphans = find_orphans({name: one.fences or {} for name, one in found.items()})
    waiting = hold_back(
        orphans, {name: one.held for name, one in found.items()}, now=now
    )
    look_again({name: one.fences or {} for name, one in found.items()}, now=now)

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
            after = {"cluster": cluster} | ({"warnings": warnings} if warnings else {})
            events.append(
                AuditEvent("orphan removed", PLACEMENT, placement, after=after)
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
        for cluster, one in inventory.items()
        for name, fence in one.items()
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
