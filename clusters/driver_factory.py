"""The drivers of member clusters, with the states of simulated clusters in the database."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet

from clusters import kubernetes_drivers
from clusters.drivers.base import KUBERNETES, Driver
from clusters.drivers.registry import DriverContext, driver_named
from clusters.drivers.simulated.state import OWNERS, Stored
from clusters.models import MemberCluster, SimulatedPlacement
from fleetui.apimachinery.grouping import grouped
from fleetui.bulk import GroupedWrites
from fleetui.threads import brief_connection

MOST_FENCES = 1_000
"""So many placements that were removed from a simulated cluster keep their fences."""


class DatabaseStore:
    """Keeps the state of one simulated cluster; deleted with the row of the cluster.

    `read`: what was read for the next call, by placement. It is used once: a caller that saves on the base
    of an outdated state has to load it again.
    """

    def __init__(
        self, cluster_id: int, read: Mapping[str, Stored] | None = None
    ) -> None:
        self._cluster_id, self._read = cluster_id, read

    @property
    def _rows(self) -> QuerySet[SimulatedPlacement]:
        return SimulatedPlacement.objects.filter(cluster_id=self._cluster_id)

    def load(self, *placements: str) -> dict[str, Stored]:
        read, self._read = self._read, None
        if placements and read is not None:
            return {name: read[name] for name in placements if name in read}
        if placements:
            rows = self._rows.filter(placement_name__in=placements)
        else:
            rows = self._rows.exclude(placement_name=OWNERS)
        with brief_connection():
            stored = list(rows.values_list("placement_name", "revision", "content"))
        return {name: Stored(*row) for name, *row in stored}

    def save(self, states: Mapping[str, Stored]) -> bool:
        """Save the next states, all or none; return whether the revisions given are still the last ones."""
        write = partial(self._save_all, states)
        try:
            if not connection.features.has_select_for_update:
                return _saves.run(write)
            # A database that locks rows needs no group of writes, which could meet another one in a deadlock.
            with brief_connection():
                return write()
        except IntegrityError:  # the cluster left the fleet meanwhile
            return False

    def _save_all(self, states: Mapping[str, Stored]) -> bool:
        if len(states) == 1:
            return all(
                self._save(name, stored.content, stored.revision)
                for name, stored in states.items()
            )
        with transaction.atomic():
            for name in sorted(
                states
            ):  # in one order, so that two writers never wait for each other
                if not self._save(name, states[name].content, states[name].revision):
                    transaction.set_rollback(True)
                    return False
        return True

    def _save(
        self,
        placement: str,
        content: Mapping[str, Any],
        expected: int,
    ) -> bool:
        values = {
            "revision": expected + 1,
            "content": content,
            "is_held": bool(content.get("held")),
        }
        if not expected:
            _, is_new = self._rows.get_or_create(
                cluster_id=self._cluster_id, placement_name=placement, defaults=values
            )
            return is_new
        same = SimulatedPlacement.objects.filter(
            cluster_id=self._cluster_id, placement_name=placement, revision=expected
        )
        is_saved = bool(same.update(**values))
        if is_saved and not values["is_held"]:
            oldest = (
                self._rows.filter(is_held=False)
                .exclude(placement_name=OWNERS)
                .order_by("-pk")[MOST_FENCES:]
                .values_list("pk", flat=True)
            )
            if pks := list(oldest):
                self._rows.filter(pk__in=pks).delete()
        return is_saved


_saves = GroupedWrites[bool]()


def wall_clock() -> datetime:
    return datetime.now(UTC)


def read_states(
    placements: Mapping[int, Collection[str]],
) -> dict[int, dict[str, Stored]]:
    """Return the states of placements on simulated clusters, both by the keys of the clusters; one query."""
    clusters = grouped(
        (name, cluster_id) for cluster_id, names in placements.items() for name in names
    )
    wanted = [
        Q(placement_name=name, cluster_id__in=pks) for name, pks in clusters.items()
    ]
    if len(placements) < len(clusters):  # each condition takes longer than its rows
        wanted = [
            Q(cluster_id=pk, placement_name__in=names)
            for pk, names in placements.items()
        ]
    rows = SimulatedPlacement.objects.filter(reduce(or_, wanted, Q(pk__in=())))
    states: dict[int, dict[str, Stored]] = {cluster_id: {} for cluster_id in placements}
    for cluster_id, name, *row in rows.values_list(
        "cluster_id", "placement_name", "revision", "content"
    ):
        states[cluster_id][name] = Stored(*row)
    return states


def driver_for(
    cluster: MemberCluster,
    *,
    clock: Callable[[], datetime] = wall_clock,
    states: Mapping[str, Stored] | None = None,
) -> Driver:
    """Return the driver of a cluster; it connects with its first call, outside of a transaction.

    `states` were read for the first call, if the cluster is simulated.

    That of a Kubernetes cluster reads `cluster.credential`: select it with the cluster where the thread must
    not use the database. Raises UnknownDriverError for an unknown driver, InvalidManifest for a malformed
    connection.
    """
    context = DriverContext(clock, DatabaseStore(cluster.pk, states))
    if cluster.driver == KUBERNETES:
        return kubernetes_drivers.drivers.driver_of(cluster, context)
    return driver_named(cluster.driver, cluster.connection, context)
