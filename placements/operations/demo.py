"""Loading a demo fleet and taking it away again; what it brings is always marked as demo data."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from clusters.drivers.registry import SIMULATED
from clusters.models import MemberCluster
from clusters.operations.fleet_changes import lock_fleet
from clusters.operations.joining import Wanted, put_clusters
from clusters.operations.leaving import forget
from placements.demo import SIMULATED_ANNOTATION, Demo, HistoryStep, demo_of
from placements.models import Placement, Resource
from placements.operations.fleet_changes import ask_those_concerned
from placements.operations.placements import delete_placement, save_placement
from placements.operations.resources import apply_resources, delete_resources
from placements.operations.scheduling import decide
from placements.scheduling.door.kinds import MEMBER_KIND

Document = dict[str, Any]
_SHOWN = 5
LONGEST_LOAD = timedelta(seconds=60)
"""After this the workers take over what a killed load has left."""


class NameTakenError(Exception):
    """The demo has a name that something real on this hub has already."""

    def __init__(self, noun: str, names: list[str]) -> None:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        super().__init__(
            f"the demo brings {noun} that are on this hub and are not demo data: "
            f"{', '.join(names[:_SHOWN])}{more}. Nothing was loaded."
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a demo brought, or what was taken away with it."""

    clusters: int
    resources: int
    placements: int


def load_demo(size: int, *, by: User | None, now: datetime) -> Loaded:
    """Put the demo of this size in the place of the one that is there, and decide its placements.

    Raises NameTakenError when something real has one of its names; then nothing has changed.
    """
    demo = demo_of(size, now=now)
    begun = demo.history[0].at if demo.history else now
    with transaction.atomic():
        lock_fleet()
        remove_demo(by=by, now=now)
        _refuse_taken_names(demo)
        _bring(demo.at_first, by=by, now=now, at=begun)
        _hold(until=now + LONGEST_LOAD)
    _decide(begun, until=now + LONGEST_LOAD)
    for step in demo.history:
        with transaction.atomic():
            _happen(step, by=by)
            _hold(until=now + LONGEST_LOAD)
        _decide(step.at, until=now + LONGEST_LOAD)
    _hold(until=None)
    return Loaded(len(demo.clusters), len(demo.resources), len(demo.placements))


@transaction.atomic
def remove_demo(*, by: User | None, now: datetime) -> Loaded:
    """Take all demo data away; real placements find other clusters where they were on those of the demo."""
    lock_fleet()
    clusters = list(MemberCluster.objects.filter(is_demo=True))
    placements = list(Placement.objects.filter(is_demo=True, deleting_since=None))
    names = [cluster.name for cluster in clusters]
    for placement in placements:
        placement.bindings.filter(cluster_name__in=names).delete()
        delete_placement(placement.name, by=by, now=now)
    resources = list(Resource.objects.filter(is_demo=True))
    if resources:
        delete_resources(resources, by=by, now=now)
    if clusters:
        forget(clusters, verb="removed", by=by, now=now)
    return Loaded(len(clusters), len(resources), len(placements))


def _refuse_taken_names(demo: Demo) -> None:
    for noun, documents, rows in (
        ("clusters", demo.clusters, MemberCluster.objects.all()),
        ("placements", demo.placements, Placement.objects.all()),
    ):
        names = [document["metadata"]["name"] for document in documents]
        taken = sorted(rows.filter(name__in=names).values_list("name", flat=True))
        if taken:
            raise NameTakenError(noun, taken)
    _refuse_taken_resources(demo)


def _refuse_taken_resources(demo: Demo) -> None:
    wanted = {(one["kind"], _namespace(one), one["metadata"]["name"]) for one in demo.resources}
    there = Resource.objects.filter(name__in={name for _, _, name in wanted})
    taken = sorted(
        f"{kind} {name}"
        for kind, namespace, name in there.values_list("kind", "namespace", "name")
        if (kind, namespace, name) in wanted
    )
    if taken:
        raise NameTakenError("resources", taken)


def _namespace(document: Document) -> str:
    return str(document["metadata"].get("namespace", ""))


def _bring(demo: Demo, *, by: User | None, now: datetime, at: datetime) -> None:
    put_clusters([_simulated(document) for document in demo.clusters], by=by, now=now)
    apply_resources(list(demo.resources), by=by, now=at, is_demo=True)
    for document in demo.placements:
        save_placement(document, by=by, now=at, is_demo=True)


def _simulated(document: Document) -> Wanted:
    fault = document["metadata"].get("annotations", {}).get(SIMULATED_ANNOTATION)
    connection = {"fault": fault} if fault else {}
    return Wanted(document, driver=SIMULATED, connection=connection, is_demo=True)


def _happen(step: HistoryStep, *, by: User | None) -> None:
    if step.kind == MEMBER_KIND:
        put_clusters([_simulated(step.after)], by=by, now=step.at)
    else:
        save_placement(step.after, by=by, now=step.at, because=step.why, is_demo=True)


def _hold(*, until: datetime | None) -> None:
    """Keep the workers, whose time is the present, from deciding while the past is played back."""
    Placement.objects.filter(is_demo=True).update(lease_until=until, lease_token="")


def _decide(now: datetime, *, until: datetime) -> None:
    ask_those_concerned()
    due = Placement.objects.filter(is_demo=True, answered__lt=F("asked"))
    for placement_id in list(due.order_by("pk").values_list("pk", flat=True)):
        decide(placement_id, now=now)
    _hold(until=until)
