"""The drivers of member clusters, with the states of simulated clusters in the database."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import IntegrityError

from clusters.drivers.base import Driver
from clusters.drivers.registry import DriverContext, driver_named
from clusters.drivers.simulated.state import Stored
from clusters.models import MemberCluster, SimulatedPlacement

MOST_FENCES = 1_000
"""So many placements that were removed from a simulated cluster keep their fences."""


class DatabaseStore:
    """Keeps the state of one simulated cluster; deleted with the row of the cluster."""

    def __init__(self, cluster_id: int) -> None:
        self._rows = SimulatedPlacement.objects.filter(cluster_id=cluster_id)
        self._cluster_id = cluster_id

    def load(self, *placements: str) -> dict[str, Stored]:
        rows = self._rows.filter(placement_name__in=placements) if placements else self._rows
        return {
            name: Stored(*row) for name, *row in rows.values_list("placement_name", "revision", "content")
        }

    def save(self, placement: str, content: Mapping[str, Any], *, expected: int) -> bool:
        """Save the next state if `expected` is still the revision; return whether it was."""
        values = {"revision": expected + 1, "content": content, "is_held": bool(content.get("held"))}
        if not expected:
            try:
                _, is_new = self._rows.get_or_create(
                    cluster_id=self._cluster_id, placement_name=placement, defaults=values
                )
            except IntegrityError:  # the cluster left the fleet meanwhile
                return False
            return is_new
        is_saved = bool(self._rows.filter(placement_name=placement, revision=expected).update(**values))
        if is_saved and not values["is_held"]:
            oldest = (
                self._rows.filter(is_held=False).order_by("-pk")[MOST_FENCES:].values_list("pk", flat=True)
            )
            if pks := list(oldest):
                self._rows.filter(pk__in=pks).delete()
        return is_saved


def wall_clock() -> datetime:
    return datetime.now(UTC)


def driver_for(cluster: MemberCluster, *, clock: Callable[[], datetime] = wall_clock) -> Driver:
    """Create the driver of a cluster; it connects with its first call, outside of a transaction.

    Raises UnknownDriverError for an unknown driver, Faults for a malformed connection.
    """
    return driver_named(cluster.driver, cluster.connection, DriverContext(clock, DatabaseStore(cluster.pk)))
