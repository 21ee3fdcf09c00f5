"""Reading the objects of a placement on one cluster immediately, requested by a user."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.registry import ACTING_DRIVERS
from clusters.models import MemberCluster
from fleetui.errors import FleetError
from fleetui.task_queue import enqueue
from placements.engine.rollout.state import EMPTY, Phase
from placements.models import Binding
from placements.services.rollouts.call_results import ClusterCall, live_rows
from placements.services.rollouts.cluster_objects import store_objects
from placements.services.rollouts.worker import observed_version
from placements.services.workqueue import RUN_CLUSTER_CALLS

READ_SECONDS = 5.0


class NotReadableError(FleetError):
    """There is nothing to read: the cluster has no API server, or nothing of the placement."""


def readable_cluster(binding: Binding) -> MemberCluster | None:
    """Return the cluster of a binding whose objects can be read there one by one; None if there is none."""
    if binding.phase in EMPTY:
        return None
    rows = MemberCluster.objects.select_related("credential")
    return rows.filter(name=binding.cluster_name, driver__in=ACTING_DRIVERS).first()


def read_objects(
    binding: Binding, *, clock: Callable[[], datetime] = wall_clock
) -> None:
    """Read the objects of a binding on its cluster, at most five seconds, and store their states.

    What follows from them is left to the worker, which is notified where something is missing or has drifted.
    No transaction may be open. Raise NotReadableError, DriverError.
    """
    cluster, name = readable_cluster(binding), binding.placement.full_name
    if cluster is None:
        raise NotReadableError(
            f"{binding.cluster_name} has nothing of {name} that could be read"
        )
    call = ClusterCall(binding, name, cluster, ())
    driver = driver_for(cluster, clock=clock)
    state = driver.observe(
        name, version_of=lambda _: observed_version(call), timeout=READ_SECONDS
    ).of(name)
    now = clock()
    text, digest = live_rows(state.objects if state else ())
    with transaction.atomic():
        rows = Binding.objects.filter(
            pk=binding.pk, applied_version=binding.applied_version
        )
        if not rows.update(observed_at=now, objects_digest=digest):
            return  # another version was started meanwhile
        store_objects({binding.pk: text}, now=now)
        if state is None or state.missing or state.drifted:
            is_free = Q(call_lease_expires_at=None) | Q(call_lease_expires_at__lt=now)
            rows.filter(is_free, phase__in=(Phase.APPLIED, Phase.AVAILABLE)).update(
                next_call_at=now
            )
            enqueue(RUN_CLUSTER_CALLS)
