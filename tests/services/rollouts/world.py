"""A small world for rollouts: simulated clusters, a manual clock, workers that do what is due.

world = World(clusters=3)
world.place("web", spec())          saved, decided, and the run begun
world.run(until=world.is_settled)   time passes, a second at a time, until that is so
"""

import json
from collections.abc import Callable, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from clusters.models import MemberCluster
from clusters.observation import LONGEST_SILENCE, counts_until
from clusters.operations import heartbeat
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.changes import noticed_changes
from placements.engine.overrides import OverrideFailed
from placements.engine.rollout.state import Phase
from placements.models import Binding, ClusterUpdate, Placement, Rollout
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.worker import ManifestCache, run_cluster_calls
from placements.services.scheduling import schedule_due
from tests.database import load_once
from tests.rows import (
    NAMESPACE,
    NOW,
    deployment,
    member_document,
    namespace,
    placement_document,
    spec,
)

SECOND = timedelta(seconds=1)
QUICK: Mapping[str, Any] = {"applyMilliseconds": 0, "readySeconds": 2}


class World:
    """Clusters, and a moment that is now."""

    def __init__(self, clusters: int, *, connection: Mapping[str, Any] = QUICK) -> None:
        self.now = NOW
        self.call_takes = timedelta()
        self.join(clusters, connection=connection)
        self.tag = 0
        self.namespaces = ["shop"]
        self.apply(namespace("shop"))
        self.change()

    def join(self, clusters: int, *, connection: Mapping[str, Any] = QUICK) -> None:
        """Add clusters until there are so many."""
        documents = [member_document(f"c{number:03}") for number in range(clusters)]
        wanted = [
            ClusterSpec(document, driver="simulated", connection=connection)
            for document in documents
        ]
        upsert_clusters(wanted, by=None, now=self.now)
        observe(now=self.now)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Apply resources to the hub."""
        apply_resources(documents, by=None, now=self.now)

    def change(self) -> None:
        """Change the image of each Deployment, so that every cluster needs a new version."""
        self.tag += 1
        self.apply(
            *(deployment("web", f"web:{self.tag}", in_=one) for one in self.namespaces)
        )

    def place(
        self, name: str, spec: Mapping[str, Any], *, shares: bool = False
    ) -> Placement:
        """Save a placement and let the workers begin.

        One beside others has a namespace of its own, unless it `shares` theirs: clusters refuse an object of
        another placement.
        """
        wanted = dict(spec)
        is_alone = shares or not Placement.objects.exclude(name=name).exists()
        if not is_alone and wanted["resourceSelectors"] == [NAMESPACE]:
            wanted["resourceSelectors"] = [
                {**NAMESPACE, "name": self.add_namespace(name)}
            ]
        save_placement(placement_document(name, wanted), by=None, now=self.now)
        self.work()
        return Placement.objects.get(name=name)

    def add_namespace(self, name: str) -> str:
        """Add a namespace with a Deployment that `change` changes, too; return its name."""
        own = f"{name}-apart" if name in self.namespaces else name
        self.namespaces = [*self.namespaces, own]
        self.apply(namespace(own), deployment("web", f"web:{self.tag}", in_=own))
        return own

    @noticed_changes()
    def work(self) -> None:
        """Do everything that is due at this moment."""
        enqueue_affected_placements()
        for _ in range(10_000):
            done = schedule_due(now=self.now) + sync_due_rollouts(now=self.now)
            if not done + run_cluster_calls(
                now=self.now, threads=0, clock=self._answered
            ):
                return
        raise AssertionError("the workers do not come to rest")

    def _answered(self) -> datetime:
        return self.now + self.call_takes

    def pass_time(self, seconds: int = 1, *, step: int = 1) -> None:
        """Advance the clock, and run the workers each `step` seconds."""
        for _ in range(0, seconds, step):
            self.now += step * SECOND
            observe(now=self.now)
            self.work()

    def run(
        self, *, until: Callable[[], bool], seconds: int = 300, step: int = 1
    ) -> int:
        """Advance the clock until a condition holds, and return the seconds."""
        for passed in range(0, seconds, step):
            if until():
                return passed
            self.pass_time(step, step=step)
        raise AssertionError(f"still not so after {seconds} s: {self.phases()}")

    def inject(self, cluster: str, *faults: Mapping[str, Any]) -> None:
        """Inject faults into a simulated cluster, instead of those before."""
        connection = {**QUICK, "faults": [dict(fault) for fault in faults]}
        MemberCluster.objects.filter(name=cluster).update(connection=connection)

    def is_settled(self) -> bool:
        """Return whether no run is in progress."""
        return not Rollout.objects.filter(state=Rollout.State.RUNNING).exists()

    def phases(self, name: str = "web") -> dict[str, str]:
        """Return how far every cluster of a placement is."""
        rows = Binding.objects.filter(placement__name=name).order_by("cluster_name")
        return dict(rows.values_list("cluster_name", "phase"))

    def available(self, name: str = "web") -> list[str]:
        """Return the clusters on which a placement is available."""
        return [
            cluster
            for cluster, phase in self.phases(name).items()
            if phase == Phase.AVAILABLE
        ]


def one_at_a_time(**more: Any) -> dict[str, Any]:
    """Make the spec of a PickAll placement that updates one cluster at a time."""
    rolling = {
        "maxUnavailable": 1,
        "maxSurge": 1,
        "unavailablePeriodSeconds": 2,
        **more,
    }
    return spec(strategy={"type": "RollingUpdate", "rollingUpdate": rolling})


def settled_world(clusters: int, wanted: Mapping[str, Any]) -> World:
    """Make clusters with a placement `web` of this spec that has come to all of them, once in a process."""

    def make() -> World:
        made = World(clusters)
        made.place("web", wanted)
        made.run(until=made.is_settled)
        return made

    is_silence_real = heartbeat.counts_until is counts_until
    name = json.dumps([clusters, wanted, is_silence_real], sort_keys=True)
    settled = world_once(name, make)
    if not is_silence_real:  # else the observations of the first time become too old
        observed = MemberCluster.objects.exclude(observed_until=None)
        observed.update(observed_until=datetime.now(UTC) + LONGEST_SILENCE)
    return settled


def updating_world() -> World:
    """Make three clusters in the middle of an update, one cluster at a time."""
    made = settled_world(3, one_at_a_time())
    made.change()
    made.work()
    return made


AnyWorld = TypeVar("AnyWorld", bound=World)
_worlds: dict[str, Any] = {}


def world_once(name: str, make: Callable[[], AnyWorld]) -> AnyWorld:
    """Return a world as `make` builds it; after the first time in this process with the rows of that one."""

    def build() -> None:
        _worlds[name] = copy(make())

    load_once(name, build)
    return cast(AnyWorld, copy(_worlds[name]))


def starts(name: str = "web") -> list[tuple[int, str, str]]:
    """Return every start of a placement: the seconds since the beginning, the cluster, what was started."""
    rows = ClusterUpdate.objects.filter(rollout__placement_name=name).order_by(
        "started_at", "cluster_name"
    )
    return [
        (int((at - NOW).total_seconds()), cluster, what)
        for at, cluster, what in rows.values_list("started_at", "cluster_name", "what")
    ]


def handed_to(cluster: str, name: str = "web") -> dict[str, dict[str, Any]]:
    """Return the manifests, by kind, that the driver of a cluster gets for what was last started there."""
    binding = Binding.objects.get(placement__name=name, cluster_name=cluster)
    objects = ManifestCache().of(binding, MemberCluster.objects.get(name=cluster))
    assert not isinstance(objects, OverrideFailed)
    return {one["kind"]: dict(one) for one in objects}
