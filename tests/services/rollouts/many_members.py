"""A console with many Kubernetes clusters behind one local server, and a clock that the test turns."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from clusters import kubernetes_drivers
from clusters.drivers.base import KUBERNETES
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import new_member
from clusters.operations.credentials import store_secret
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.models import Binding
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.removals import remove_orphans
from placements.services.rollouts.worker import run_cluster_calls
from placements.services.scheduling import schedule_due
from tests.rows import config_map, namespace, placement_document, spec
from tests.services.rollouts.world import World

TICK = 5
"""Seconds between two rounds of heartbeats, as the clock of the console sends them."""


class ManyMembers(World):
    """Clusters that join without a check of each connection; also the clock of the drivers is turned."""

    def __init__(
        self, url: str, ca: str, tokens: Mapping[str, str], patch: pytest.MonkeyPatch
    ) -> None:
        self.began = self.now = datetime.now(UTC)
        self.call_takes, self.tag = timedelta(), 0
        patch.setattr(
            kubernetes_drivers, "drivers", DriverCache(monotonic=self.monotonic)
        )
        connection = {"server": url, "ca": ca}
        wanted = [
            ClusterSpec(new_member(name), driver=KUBERNETES, connection=connection)
            for name in tokens
        ]
        upsert_clusters(wanted, by=None, now=self.now)
        for row in MemberCluster.objects.filter(name__in=tokens):
            store_secret(
                row, None, Secret({"token": tokens[row.name]}), by=None, now=self.now
            )

    def monotonic(self) -> float:
        return time.monotonic() + (self.now - self.began).total_seconds()

    def place_everywhere(
        self, *, config_maps: int = 3, most: int | str = "100%", threads: int = 0
    ) -> None:
        """Place a Namespace and so many ConfigMaps on all clusters, and wait until they are there."""
        self.apply(
            namespace("shop"),
            *(config_map(f"settings-{number}") for number in range(config_maps)),
        )
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
        document = placement_document(
            "web", spec({"placementType": "PickAll"}, strategy=strategy)
        )
        save_placement(document, by=None, now=self.now)
        self.tick(threads=threads)
        while not self.is_settled():
            self.tick(threads=threads)

    def tick(self, *, seconds: int = TICK, threads: int = 0) -> None:
        """Do what the observer and the worker do at one tick of the clock."""
        self.now += timedelta(seconds=seconds)
        observe(now=self.now)
        enqueue_affected_placements()
        while True:
            done = schedule_due(now=self.now) + sync_due_rollouts(now=self.now)
            done += run_cluster_calls(
                now=self.now, threads=threads, clock=lambda: self.now
            )
            if not done + remove_orphans(
                now=self.now, threads=threads, clock=lambda: self.now
            ):
                return

    def silent(self) -> int:
        """Return how many clusters did not answer the last heartbeat."""
        return MemberCluster.objects.exclude(unanswered_since=None).count()

    def rest(self, length: timedelta) -> None:
        """Move the times of the bindings into the past."""
        Binding.objects.update(phase_changed_at=self.now - length)


def tokens_of(count: int, *, frozen: Sequence[str] = ()) -> dict[str, str]:
    """Name clusters, each with its token."""
    names = (f"m{number:04}" for number in range(count))
    return {
        name: f"frozen-{name}" if name in frozen else f"token-{name}" for name in names
    }
