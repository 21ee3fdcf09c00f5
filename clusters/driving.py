"""The driver of a member cluster."""

from collections.abc import Callable
from datetime import UTC, datetime

from clusters.drivers.base import Driver
from clusters.drivers.registry import Surroundings, driver_named
from clusters.models import MemberCluster
from clusters.simulation import DatabaseStore


def wall_clock() -> datetime:
    """Tell what time it is."""
    return datetime.now(UTC)


def driver_for(cluster: MemberCluster, *, clock: Callable[[], datetime] = wall_clock) -> Driver:
    """Make the driver of a cluster; it asks nothing before its first call.

    Call it outside of a transaction. Raises UnknownDriverError when nobody of ours speaks to the cluster,
    Faults when its connection is malformed.
    """
    return driver_named(cluster.driver, cluster.connection, Surroundings(clock, DatabaseStore(cluster.pk)))
