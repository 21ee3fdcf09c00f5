"""The drivers of member clusters, with the states of simulated clusters in the database."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import QuerySet

from clusters import kubernetes_drivers
from clusters.drivers.base import Driver
from clusters.drivers.registry import KUBERNETES, DriverContext, driver_named
from clusters.drivers.simulated.state import Stored
from clusters.models import MemberCluster, SimulatedState


class DatabaseStore:
    """Keeps the state of one simulated cluster; deleted with the row of the cluster."""

    def __init__(self, cluster_id: int) -> None:
        self._cluster_id = cluster_id

    def load(self) -> Stored:
        rows = self._rows().values_list("revision", "content")
        return next((Stored(*row) for row in rows), Stored(0, {}))

    def save(self, content: Mapping[str, Any], *, expected: int) -> bool:
        """Save the next state if `expected` is still the revision; return whether it was."""
        if expected:
            unmoved = self._rows().filter(revision=expected)
            return bool(unmoved.update(revision=expected + 1, content=content))
        try:
            _, is_new = SimulatedState.objects.get_or_create(
                cluster_id=self._cluster_id, defaults={"revision": 1, "content": content}
            )
        except IntegrityError:  # the cluster left the fleet meanwhile
            return False
        return is_new

    def _rows(self) -> QuerySet[SimulatedState]:
        return SimulatedState.objects.filter(cluster_id=self._cluster_id)


def wall_clock() -> datetime:
    return datetime.now(UTC)


def driver_for(cluster: MemberCluster, *, clock: Callable[[], datetime] = wall_clock) -> Driver:
    """Return the driver of a cluster; it connects with its first call, outside of a transaction.

    That of a Kubernetes cluster reads `cluster.credential`: select it with the cluster where the thread must
    not use the database. Raises UnknownDriverError for an unknown driver, Faults for a malformed connection.
    """
    context = DriverContext(clock, DatabaseStore(cluster.pk))
    if cluster.driver == KUBERNETES:
        return kubernetes_drivers.drivers.driver_of(cluster, context)
    return driver_named(cluster.driver, cluster.connection, context)
