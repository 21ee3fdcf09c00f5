"""The demo fleets, and loading and removing one; all of its rows are marked as demo data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from clusters.drivers.base import SIMULATED
from clusters.fleet import collector_paused
from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import forget
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.kinds import MEMBER_KIND
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import names_and_more
from fleetui.errors import FleetError
from placements.models import Binding, Placement, Resource
from placements.services.demo.large import large_fleet, large_placements
from placements.services.demo.model import (
    SIMULATED_ANNOTATION,
    Demo,
    application,
    cluster_role,
    custom_kind,
    name_of,
)
from placements.services.demo.small import four, nine
from placements.services.disruption.drains import end_drains_of
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources, delete_resources
from placements.services.resources.queries import may_select
from placements.services.scheduling import schedule_placement
from placements.services.traces import forget_clusters

Document = dict[str, Any]
_MOST_NAMES = 5
_DEPENDENTS = 50
LONGEST_LOAD = timedelta(seconds=60)
"""After this the workers take over what a killed load did not finish."""
READY_SECONDS = 10
"""An update of a quarter of the clusters at a time takes about half a minute: long enough to pause it."""


class NameTakenError(FleetError):
    """The demo has a name that something real on this hub has already."""

    problem_type = "exists"

    def __init__(self, noun: str, names: list[str]) -> None:
        super().__init__(
            f"the demo has {noun} with the names of objects on this hub that are not demo data: "
            f"{names_and_more(names, _MOST_NAMES)}. Nothing was loaded."
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    clusters: int
    resources: int
    placements: int


def load_demo(size: int, *, by: User | None, now: datetime) -> Loaded:
    """Replace the demo data by a demo of this size, and schedule its placements.

    Raise NameTakenError if another object has one of its names; nothing is changed then.
    """
    demo = demo_of(size, now=now)
    start = demo.history[0].at if demo.history else now
    with transaction.atomic():
        lock_fleet()
        remove_demo(by=by, now=now)
        for noun, documents, rows in (
            ("clusters", demo.clusters, MemberCluster.objects.all()),
            ("placements", demo.placements, Placement.objects.filter(namespace="")),
        ):
            names = [document["metadata"]["name"] for document in documents]
            conflicts = sorted(
                rows.filter(name__in=names).values_list("name", flat=True)
            )
            if conflicts:
                raise NameTakenError(noun, conflicts)
        _refuse_taken_resources(demo)
        first = demo.at_first
        upsert_clusters(
            [_simulated(document) for document in first.clusters], by=by, now=start
        )
        apply_resources(list(first.resources), by=by, now=start, is_demo=True)
        for document in first.placements:
            save_placement(document, by=by, now=start, is_demo=True)
        _extend_leases(until=now + LONGEST_LOAD)
    _schedule(start, until=now + LONGEST_LOAD)
    for step in demo.history:
        with transaction.atomic():
            if step.kind == MEMBER_KIND:
                upsert_clusters([_simulated(step.after)], by=by, now=step.at)
            else:
                save_placement(
                    step.after, by=by, now=step.at, trigger=step.why, is_demo=True
                )
            _extend_leases(until=now + LONGEST_LOAD)
        _schedule(step.at, until=now + LONGEST_LOAD)
    _extend_leases(until=None)
    return Loaded(len(demo.clusters), len(demo.resources), len(demo.placements))


@transaction.atomic
def remove_demo(*, by: User | None, now: datetime) -> Loaded:
    """Delete all demo data; real placements on clusters of the demo are rescheduled."""
    lock_fleet()
    clusters = list(MemberCluster.objects.filter(is_demo=True))
    placements = list(Placement.objects.filter(is_demo=True, deleting_since=None))
    names = [cluster.name for cluster in clusters]
    for placement in placements:
        placement.bindings.filter(cluster_name__in=names).delete()
        placement.drafts.all().delete()
        delete_placement(placement.full_name, by=by, now=now)
    resources = list(Resource.objects.filter(is_demo=True))
    if resources:
        delete_resources(resources, by=by, now=now)
    if clusters:
        end_drains_of(names, by=by, now=now)
        forget(clusters, verb="removed", by=by, now=now)
        forget_clusters(names, since=min(cluster.joined_at for cluster in clusters))
    return Loaded(len(clusters), len(resources), len(placements))


@dataclass(frozen=True, slots=True)
class DemoState:
    """What there is of a demo, and the placements of users that depend on it."""

    clusters: int
    placements: int
    resources: int
    dependents: tuple[str, ...]
    """At most 50 full names."""

    def __bool__(self) -> bool:
        return bool(self.clusters or self.placements or self.resources)


def demo_state() -> DemoState:
    """Return the counts of the demo, and who else has its clusters or selects its resources."""
    clusters = MemberCluster.objects.filter(is_demo=True)
    contents = Resource.objects.filter(is_demo=True).values_list("content", flat=True)
    placements = Placement.objects.filter(is_demo=True).count()
    objects = [HubObject.of(content) for content in contents]
    on_demo = Binding.objects.filter(
        cluster_name__in=clusters.values("name"), placement__is_demo=False
    )
    bound = set(on_demo.values_list("placement_id", flat=True))
    own = Placement.objects.filter(is_demo=False, deleting_since=None).order_by("name")
    dependents = (
        placement.full_name
        for placement in own
        if placement.pk in bound or may_select(placement, objects)
    )
    return DemoState(
        clusters.count(),
        placements,
        len(objects),
        tuple(islice(dependents, _DEPENDENTS)),
    )


def _refuse_taken_resources(demo: Demo) -> None:
    identities = {
        (
            resource["kind"],
            str(resource["metadata"].get("namespace", "")),
            resource["metadata"]["name"],
        )
        for resource in demo.resources
    }
    there = Resource.objects.filter(name__in={name for _, _, name in identities})
    conflicts = sorted(
        f"{kind} {name}"
        for kind, namespace, name in there.values_list("kind", "namespace", "name")
        if (kind, namespace, name) in identities
    )
    if conflicts:
        raise NameTakenError("resources", conflicts)


def _simulated(document: Document) -> ClusterSpec:
    fault = document["metadata"].get("annotations", {}).get(SIMULATED_ANNOTATION)
    connection: Document = {"readySeconds": READY_SECONDS}
    if fault:
        connection["fault"] = fault
    return ClusterSpec(document, driver=SIMULATED, connection=connection, is_demo=True)


def _extend_leases(*, until: datetime | None) -> None:
    Placement.objects.filter(is_demo=True).update(
        lease_expires_at=until, lease_token=""
    )


def _schedule(now: datetime, *, until: datetime) -> None:
    enqueue_affected_placements()
    due = Placement.objects.filter(
        is_demo=True, observed_generation__lt=F("generation")
    )
    for placement_id in list(due.order_by("pk").values_list("pk", flat=True)):
        schedule_placement(placement_id, now=now)
    _extend_leases(until=until)


DEMO_SIZES = (4, 9, 100, 5000)


@collector_paused()
def demo_of(size: int, *, now: datetime) -> Demo:
    """Return the demo of that many clusters, whose last heartbeat is just before `now` (with time zone).

    Deterministic. Raise ValueError for other sizes than `DEMO_SIZES`.
    """
    if size not in _DEMOS:
        raise ValueError(
            f"no demo has {size} clusters, only {', '.join(map(str, DEMO_SIZES))}"
        )
    return _DEMOS[size](now)


def _large(size: int, number: str, now: datetime) -> Demo:
    clusters = large_fleet(size, now)
    placements = large_placements(clusters)
    applications = (
        application(name_of(placement), team="platform") for placement in placements
    )
    labels = {"part-of": "monitoring"}
    resources = (
        custom_kind("Probe", group="monitoring.example.com", labels=labels),
        custom_kind("AlertRule", group="monitoring.example.com", labels=labels),
        cluster_role("metrics-reader", "nodes", "pods"),
        *(document for documents in applications for document in documents),
    )
    return Demo(f"{number} clusters of four providers", clusters, resources, placements)


_DEMOS: Mapping[int, Callable[[datetime], Demo]] = {
    4: four,
    9: nine,
    100: partial(_large, 100, "A hundred"),
    5000: partial(_large, 5000, "Five thousand"),
}
